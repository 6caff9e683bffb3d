"""Metrics of a run with ties, as expected over all orders of each tie group.

A sort settles ties by accident, and saturated or rounded scores tie often. Closed forms (McSherry and
Najork, "Computing Information Retrieval Performance Measures Efficiently in the Presence of Tied
Scores", ECIR 2008). ``scores`` and ``gains`` or ``relevant`` run over the same documents, in any
order; every score must be finite.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from cascade.metrics.rows import discounts

__all__ = ["hit_over_ties", "ndcg_over_ties", "recall_over_ties", "reciprocal_rank_over_ties"]


def ndcg_over_ties(scores: NDArray[np.float64], gains: NDArray[np.float64], ideal: float, k: int) -> float:
    """Return the expected nDCG@k: each rank of a tie group holds the group's mean gain."""
    if ideal <= 0.0:
        return 0.0
    top = _expected(scores, gains)[:k]
    return float(top @ discounts(top.size)) / ideal


def recall_over_ties(scores: NDArray[np.float64], relevant: NDArray[np.bool_], total: int, k: int) -> float:
    """Return the expected share of the ``total`` relevant documents among the first ``k``."""
    return float(_expected(scores, relevant.astype(np.float64))[:k].sum()) / total if total else 0.0


def reciprocal_rank_over_ties(scores: NDArray[np.float64], relevant: NDArray[np.bool_], k: int | None = None) -> float:
    """Return the expected reciprocal rank of the first relevant document among the first ``k``.

    Of ``size`` tied documents behind ``before`` others, ``found`` of them relevant, the first relevant
    one stands at place j with probability C(size - j, found - 1) / C(size, found).
    """
    most = scores.size if k is None else k
    for before, size, found in _groups(scores, relevant):
        if found:
            places = _first_places(size, found)
            return sum(chance / (before + place) for place, chance in enumerate(places, 1) if before + place <= most)
    return 0.0


def hit_over_ties(scores: NDArray[np.float64], relevant: NDArray[np.bool_], k: int) -> float:
    """Return the probability that the first ``k`` hold a relevant document."""
    for before, size, found in _groups(scores, relevant):
        if found:
            return min(1.0, sum(_first_places(size, found)[: max(0, k - before)]))
    return 0.0


def _first_places(size: int, found: int) -> list[float]:
    """Return the probability that the first of ``found`` relevant among ``size`` stands at place 1, 2, ..."""
    chances, none_yet = [], 1.0
    for place in range(size - found + 1):
        here = found / (size - place)
        chances.append(none_yet * here)
        none_yet *= 1.0 - here
    return chances


def _groups(scores: NDArray[np.float64], relevant: NDArray[np.bool_]) -> Iterator[tuple[int, int, int]]:
    """Yield (documents before, size, relevant) of each tie group, best first."""
    order, starts = _sorted(scores)
    found = np.add.reduceat(relevant[order].astype(np.int64), starts) if scores.size else starts
    ends = np.append(starts, scores.size)[1:]
    yield from zip(starts.tolist(), (ends - starts).tolist(), found.tolist(), strict=True)


def _expected(scores: NDArray[np.float64], values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the expected value at each rank: the mean of its tie group."""
    if not scores.size:
        return np.zeros(0)
    order, starts = _sorted(scores)
    sizes = np.diff(np.append(starts, scores.size))
    return np.repeat(np.add.reduceat(values[order], starts) / sizes, sizes)


def _sorted(scores: NDArray[np.float64]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the order, best first, and where in it each tie group starts."""
    order = np.argsort(-scores, kind="stable")
    new = np.ones(scores.size, dtype=np.bool_)
    new[1:] = np.diff(scores[order]) != 0
    return order, np.flatnonzero(new)
