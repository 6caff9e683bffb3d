"""Check cross-fitted probabilities against what came true, on first-stage prefixes and by class of query."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from cascade.calibration.artefact import ReliabilityRow
from cascade.calibration.gain import CUTOFFS
from cascade.calibration.reliability import reliability
from cascade.fit.cross import CrossFitted
from cascade.fit.training import TrainingQuery, top_c
from cascade.replay.queries import ReplayedQuery

__all__ = ["reliability_rows"]

_PREFIXES: Final = (20, 50, 100)
_BINS: Final = 15
_ALL: Final = "all"


def reliability_rows(
    queries: Sequence[ReplayedQuery], training: Sequence[TrainingQuery], crossed: CrossFitted
) -> tuple[ReliabilityRow, ...]:
    """Return a row for each prefix, the whole length last, for all queries and each class of them, and for each cutoff.

    Each query is judged by the entry model that has not seen it. Only rows of all queries have bins.
    """
    rows = []
    longest = max(len(one.small) for one in training)
    classes = np.array([query.slices.get("q_class", _ALL) for query in queries])
    for depth in [depth for depth in _PREFIXES if depth < longest] + [longest]:
        p = [one.p for one in crossed.estimates(training, depth)]
        entered = [top_c(one.large[:depth]) for one in training]
        known = [np.isfinite(one.large[:depth]) & np.isfinite(one.small[:depth]) for one in training]
        for name in (_ALL, *sorted(set(classes.tolist()) - {_ALL})):
            chosen = [place for place in range(len(p)) if name in (_ALL, classes[place])]
            for column, cutoff in enumerate(CUTOFFS):
                predicted = np.concatenate([p[place][known[place], column] for place in chosen])
                came_true = np.concatenate([entered[place][known[place], column] for place in chosen])
                if not len(predicted):
                    continue
                found = reliability(predicted, came_true, _BINS)
                bins = tuple((b.count, b.predicted, b.observed) for b in found.bins) if name == _ALL else ()
                rows.append(
                    ReliabilityRow(
                        prefix=depth,
                        query_class=name,
                        cutoff=cutoff,
                        pairs=found.count,
                        brier=found.brier,
                        ece=found.ece,
                        ece_floor=found.ece_floor,
                        predicted=found.predicted,
                        observed=found.observed,
                        bins=bins,
                    )
                )
    return tuple(rows)
