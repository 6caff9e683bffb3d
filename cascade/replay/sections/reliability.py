"""Whether the calibration's probabilities hold on these queries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from cascade.calibration.calibrated import Calibration
from cascade.calibration.gain import CUTOFFS
from cascade.calibration.reliability import reliability
from cascade.replay.baselines import within_depth
from cascade.replay.queries import ReplayedQuery
from cascade.replay.report import number
from cascade.replay.serving import ranks_by_score

__all__ = ["columns", "told"]

_ALL: Final = "all"
_STEPS: Final = np.iinfo(np.uint16).max
"""Probabilities are kept in so many steps: far finer than any error that can be seen, and a fourth of the room."""
_ABSENT: Final = -1
_BELOW: Final = max(CUTOFFS)
_NONE: Final = "no calibration was given"
_NOWHERE: Final = "the calibration holds for the candidates of no query"


def columns(queries: Sequence[ReplayedQuery], calibration: Calibration | None, most: int) -> dict[str, NDArray[Any]]:
    """Return p of each candidate at each cutoff (Q, most, 4), in steps, and its rank from 0 in the large order (Q, most).

    A rank of -1 stands for a candidate that a stage did not score, or that is not there; a rank below every
    cutoff is that of the last. Where the calibration does not hold all of a query's ranks are -1. Nothing
    without a calibration.
    """
    if calibration is None:
        return {}
    steps = np.zeros((len(queries), most, len(CUTOFFS)), dtype=np.uint16)
    ranks = np.full((len(queries), most), _ABSENT, dtype=np.int8)
    for at, query in enumerate(queries):
        small, channels = within_depth(query)
        if calibration.misfit(small, channels) is not None:
            continue
        steps[at, : small.size] = np.rint(calibration.entry(small, channels) * _STEPS)
        large = query.large[: small.size]
        known = np.isfinite(small) & np.isfinite(large)
        ranks[at, : small.size] = np.where(known, np.minimum(ranks_by_score(large), _BELOW), _ABSENT)
    return {"reliability.p": steps, "reliability.rank": ranks}


def told(columns: Mapping[str, NDArray[Any]], classes: Sequence[str], most: int) -> dict[str, Any]:
    """Return a row for each cutoff of all queries, with bins of equal size, and of each class (Q,), without.

    What an event is: the large stage puts the candidate in its top ``cutoff``. ``left_out`` counts the
    queries for which the calibration does not hold.
    """
    if "reliability.p" not in columns:
        return {"rows": [], "reasons": {"rows": _NONE}}
    ranks = columns["reliability.rank"]
    held = (ranks != _ABSENT).any(axis=1)
    labels = np.array(classes)
    rows = []
    for name in (_ALL, *sorted(set(classes) - {""})):
        chosen = held if name == _ALL else held & (labels == name)
        if chosen.any():
            rows += [_row(columns, chosen, at, name, most) for at in range(len(CUTOFFS))]
    reasons = {} if rows else {"rows": _NOWHERE}
    return {"queries": int(held.sum()), "left_out": int((~held).sum()), "rows": rows, "reasons": reasons}


def _row(
    columns: Mapping[str, NDArray[Any]], chosen: NDArray[np.bool_], column: int, name: str, most: int
) -> dict[str, Any]:
    ranks = columns["reliability.rank"][chosen]
    known = ranks != _ABSENT
    p = columns["reliability.p"][chosen, :, column][known] / _STEPS
    found = reliability(p, ranks[known] < CUTOFFS[column])
    bins = [[each.count, number(each.predicted), number(each.observed)] for each in found.bins]
    return {
        "prefix": most,
        "query_class": name,
        "cutoff": CUTOFFS[column],
        "pairs": found.count,
        "brier": number(found.brier),
        "ece": number(found.ece),
        "ece_floor": number(found.ece_floor),
        "predicted": number(found.predicted),
        "observed": number(found.observed),
        "bins": bins if name == _ALL else [],
    }
