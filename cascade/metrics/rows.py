"""The same metrics of many orders of one query at once: the last axis is the order, best first."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["discounts", "hit_rows", "ideal_dcg", "ndcg_rows", "recall_rows", "reciprocal_rank_rows"]


def discounts(count: int) -> NDArray[np.float64]:
    """Return 1 / log2(rank + 1) of the ranks 1 to ``count``."""
    return 1.0 / np.log2(np.arange(2, count + 2, dtype=np.float64))


def ideal_dcg(gains: NDArray[np.float64], k: int) -> float:
    """Return the greatest DCG@k that documents of these gains, in any order, can reach."""
    return float(_dcg(np.sort(gains)[::-1][:k]))


def ndcg_rows(gains: NDArray[np.float64], ideal: float, k: int) -> NDArray[np.float64]:
    """Return nDCG@k of each order of gains (..., n), 0.0 where ``ideal``, the ideal DCG@k, is nought."""
    top = gains[..., :k]
    if ideal <= 0.0:
        return np.zeros(top.shape[:-1])
    return _dcg(top) / ideal


def _dcg(gains: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the DCG of each order; as a sum, not a product of matrices, whose rounding depends on how many there are."""
    return np.asarray((gains * discounts(gains.shape[-1])).sum(axis=-1))


def reciprocal_rank_rows(relevant: NDArray[np.bool_], k: int | None = None) -> NDArray[np.float64]:
    """Return 1 / rank of the first relevant document of each order (..., n) among its first ``k``, 0.0 without one."""
    top = relevant[..., :k]
    if not top.shape[-1]:
        return np.zeros(top.shape[:-1])
    return np.where(top.any(axis=-1), 1.0 / (np.argmax(top, axis=-1) + 1.0), 0.0)


def recall_rows(relevant: NDArray[np.bool_], total: int, k: int) -> NDArray[np.float64]:
    """Return which share of the ``total`` relevant documents the first ``k`` of each order (..., n) hold, 0.0 of none."""
    found = relevant[..., :k].sum(axis=-1, dtype=np.float64)
    return np.asarray(found / max(1, total))


def hit_rows(relevant: NDArray[np.bool_], k: int) -> NDArray[np.float64]:
    """Return 1.0 for each order (..., n) whose first ``k`` hold a relevant document, else 0.0."""
    return np.asarray(relevant[..., :k].any(axis=-1), dtype=np.float64)
