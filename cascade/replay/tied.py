"""How much of a stage's quality its ties decide: what a sort by first-stage order got, against the mean of all orders."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from cascade.metrics import ndcg_over_ties
from cascade.replay.columns import FloatArray
from cascade.replay.queries import ReplayedQuery

__all__ = ["Tied", "tied"]


@dataclass(frozen=True, slots=True)
class Tied:
    """The mean nDCG@k expected over all orders of tied scores, and the share of queries with a tie in the top k."""

    ndcg_over_ties: float
    queries_tied: float


def tied(queries: Sequence[ReplayedQuery], scores_of: Callable[[ReplayedQuery], FloatArray], k: int) -> Tied:
    """Measure the ties of a stage's raw scores. Candidates that it did not score follow in first-stage order."""
    expected, ties = [], []
    for query in queries:
        scores = scores_of(query)
        scored = np.isfinite(scores)
        lowest = float(scores[scored].min())
        filled = np.where(scored, scores, lowest - (1.0 + np.arange(scores.size)) * max(1.0, abs(lowest)))
        expected.append(ndcg_over_ties(filled, query.judgement.gains, query.judgement.ideal, k))
        ties.append(bool((np.diff(np.sort(scores[scored])[::-1][: k + 1]) == 0).any()))
    return Tied(float(np.mean(expected)), float(np.mean(ties)))
