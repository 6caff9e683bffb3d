"""What an artefact says of the queries that it was fitted on: which they were, and where its estimates hold."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np

from cascade.calibration.artefact import TrainedOn, ValidRange
from cascade.fit.training import TrainingQuery
from cascade.replay.queries import Roles
from cascade.replay.table import ScoreTable, data_sha256

__all__ = ["escalated_by_release", "trained_on", "valid_range"]

_NO_ENTRY_BELOW: Final = 10
_ROOM_ABOVE: Final = 2.0
_PRESENT: Final = 0.5


def trained_on(
    table: ScoreTable, training: Sequence[TrainingQuery], roles: Roles, *, where: Mapping[str, str], seed: int
) -> TrainedOn:
    """Return what repeats a fit, and refuses to certify on its queries. Pairs are those that both stages scored."""
    return TrainedOn(
        queries=len(training),
        pairs=sum(int((np.isfinite(one.small) & np.isfinite(one.large)).sum()) for one in training),
        data_sha256=data_sha256(table, [*roles.first_stage, roles.small, roles.large]).removeprefix("sha256:"),
        query_ids_sha256=tuple(hashlib.sha256(name.encode()).hexdigest()[:16] for name in table.query_ids),
        where=dict(where),
        seed=seed,
        first_stage=table.first_stage_name(roles.first_stage),
    )


def valid_range(training: Sequence[TrainingQuery], channels: Sequence[str]) -> ValidRange:
    """Hold estimates from lists of ten up to twice the longest seen, and with half the scores usually there."""
    longest = max(len(one.small) for one in training)
    present = {"small": _PRESENT}
    for name in channels:
        shares = [float(np.isfinite(one.channels[name]).mean()) for one in training]
        present[name] = _PRESENT * float(np.quantile(shares, 0.05))
    return ValidRange(
        least_candidates=min(_NO_ENTRY_BELOW, longest),
        most_candidates=int(_ROOM_ABOVE * longest),
        least_present=present,
    )


def escalated_by_release(table: ScoreTable) -> Iterator[str]:
    """Say how many queries of decision records are no sample of the traffic: a release chose to escalate them whole."""
    modes = table.of_queries("q_mode") if "q_mode" in table.attributes else ()
    if count := modes.count("cascade"):
        rest = "; --where q_mode=observe leaves them out" if count < len(modes) else ""
        yield f"{count} of {len(modes)} queries were escalated whole by a release: no sample of the traffic{rest}"
