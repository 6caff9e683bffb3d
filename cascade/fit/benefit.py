"""Whether the large stage helps at all, by judgements."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cascade.calibration.artefact import Benefit
from cascade.replay.intervals import figure, resampled
from cascade.replay.queries import ReplayedQuery
from cascade.replay.sweep import Metric, outcome

__all__ = ["quality_of_ends", "shown_benefit"]

_RESAMPLES = 4000


def quality_of_ends(query: ReplayedQuery, k: int) -> tuple[float, float]:
    """Return nDCG@k of the small order and of the large order within depth."""
    count = query.small.size
    sent = np.stack([np.zeros(count, dtype=np.bool_), np.arange(count) < query.pairs])
    small, large = outcome(query, sent, k).metrics[Metric.NDCG]
    return float(small), float(large)


def shown_benefit(queries: Sequence[ReplayedQuery], k: int, seed: int) -> Benefit:
    """Estimate mean Q_large - Q_small with its 95% bootstrap interval over queries.

    ``shown`` where the lower end is above zero, ``none-found`` where it is not, and ``not-shown`` where no
    judgement could tell.
    """
    metric = f"ndcg@{k}"
    if queries[0].judgement.silver:
        return Benefit(status="not-shown", metric=metric, queries=0)
    ends = np.array([quality_of_ends(query, k) for query in queries])
    draws = resampled(len(queries), _RESAMPLES, seed).means(ends[:, 1] - ends[:, 0])
    found = figure(draws, len(queries), "not defined")
    low, high = found.interval or (None, None)
    shown = low is not None and low > 0.0
    return Benefit(
        status="shown" if shown else "none-found",
        metric=metric,
        queries=len(queries),
        mean=found.value,
        low=low,
        high=high,
    )
