"""How much of a stage's quality its ties decide: what a sort by first-stage order got, against the mean of all orders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cascade.metrics import ndcg_over_ties
from cascade.replay.columns import FloatArray
from cascade.replay.queries import ReplayedQuery

__all__ = ["columns", "told"]

_STAGES = ("small", "large")


def columns(queries: Sequence[ReplayedQuery], k: int) -> dict[str, NDArray[Any]]:
    """Return for each stage the nDCG@k expected over all orders of tied scores, and whether the top k has a tie (Q,).

    Candidates that a stage did not score follow in first-stage order.
    """
    found: dict[str, NDArray[Any]] = {}
    for stage in _STAGES:
        pairs = [_tied(query.small if stage == "small" else query.large, query, k) for query in queries]
        found[f"ties.{stage}.ndcg"] = np.array([expected for expected, _ in pairs])
        found[f"ties.{stage}.tied"] = np.array([tied for _, tied in pairs])
    return found


def told(columns: Mapping[str, NDArray[Any]]) -> dict[str, Any]:
    """Return the mean nDCG over ties and the share of queries with a tie in the top k, of each stage."""
    return {
        stage: {
            "ndcg_over_ties": float(columns[f"ties.{stage}.ndcg"].mean()),
            "queries_tied": float(columns[f"ties.{stage}.tied"].mean()),
        }
        for stage in _STAGES
    }


def _tied(scores: FloatArray, query: ReplayedQuery, k: int) -> tuple[float, bool]:
    scored = np.isfinite(scores)
    lowest = float(scores[scored].min())
    filled = np.where(scored, scores, lowest - (1.0 + np.arange(scores.size)) * max(1.0, abs(lowest)))
    expected = ndcg_over_ties(filled, query.judgement.gains, query.judgement.ideal, k)
    return expected, bool((np.diff(np.sort(scores[scored])[::-1][: k + 1]) == 0).any())
