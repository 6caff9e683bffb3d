"""What single actions serve for a query, and what that is worth."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, assert_never

import numpy as np
from numpy.typing import NDArray

from cascade.metrics import hit_rows, ndcg_rows, recall_rows, reciprocal_rank_rows
from cascade.replay.columns import FloatArray, IntArray
from cascade.replay.queries import Judgement, ReplayedQuery
from cascade.replay.serving import ranks_by_score, served_orders
from cascade.replay.sweep import Metric

__all__ = ["DEPTHS", "TOPS", "action_names", "depths_within", "few_actions", "quality_rows", "small_order", "tops_at"]

DEPTHS: Final = (10, 20, 50, 100, 200, 500, 1000)
"""Depths of the small stage that are tried, beside all candidates."""

TOPS: Final = (1, 3, 5, 10, 15, 20, 30, 50)
"""How many of an order are sent, beside none and all."""


def depths_within(most: int) -> tuple[int, ...]:
    """Return the depths tried where a query has at most so many candidates: those below it, and itself."""
    return (*(depth for depth in DEPTHS if depth < most), most)


def quality_rows(judgement: Judgement, orders: IntArray, k: int, metric: Metric) -> FloatArray:
    """Return the metric at k of each order (..., n) of a query's candidates."""
    match metric:
        case Metric.NDCG:
            return ndcg_rows(judgement.gains[orders[..., :k]], judgement.ideal, k)
        case Metric.MRR:
            return reciprocal_rank_rows(judgement.relevant[orders])
        case Metric.RECALL:
            return recall_rows(judgement.relevant[orders], judgement.total, k)
        case Metric.HIT:
            return hit_rows(judgement.relevant[orders], k)
        case _:
            assert_never(metric)


def small_order(query: ReplayedQuery) -> IntArray:
    """Return the candidates (n,) in the small order, those that it did not score behind in first-stage order."""
    return np.argsort(ranks_by_score(query.small), kind="stable")


def tops_at(query: ReplayedQuery, depth: int) -> IntArray:
    """Return the orders (depth + 1, n) served where the small stage scores ``depth`` and its top m goes on, m from 0."""
    within = np.arange(query.small.size) < depth
    small = np.where(within, query.small, np.nan)
    sent = (ranks_by_score(small) < np.arange(depth + 1)[:, None]) & within
    return served_orders(sent, small, query.large)


def action_names(most: int, *, fused: bool) -> tuple[str, ...]:
    """Return the names of what :func:`few_actions` gives, cheapest first within an order."""
    tops = [top for top in TOPS if top < most]
    orders = ("top", "fused") if fused else ("top",)
    return ("first-stage", "small", *(f"{order}-{top}" for order in orders for top in tops), "large")


def few_actions(query: ReplayedQuery, ranks: Sequence[IntArray], most: int) -> tuple[IntArray, IntArray]:
    """Return the orders (A, n) that the few actions serve, and the pairs (A,) that they send to the large stage.

    ``ranks`` are those of the small order and, where there is a calibration, of its fused order.
    """
    tops = np.array([top for top in TOPS if top < most])[:, None]
    within = np.arange(query.small.size) < query.pairs
    nothing = np.zeros((1, within.size), dtype=np.bool_)
    sent: NDArray[np.bool_] = np.concatenate([nothing, *((each < tops) & within for each in ranks), within[None]])
    orders = np.concatenate([np.arange(within.size)[None], served_orders(sent, query.small, query.large)])
    return orders, np.concatenate([[0], sent.sum(axis=1)])
