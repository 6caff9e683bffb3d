"""What the large stage's order is worth, by the ranks that it may give: linear in entry probabilities."""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt

__all__ = ["CUTOFFS", "entropy", "expected_loss", "margin", "value"]

FloatArray = npt.NDArray[np.float64]

CUTOFFS: Final = (1, 3, 5, 10)
"""Ranks c for which p(c), the probability of being in the large stage's top c, is estimated."""


def discounts(k: int) -> FloatArray:
    """Return 1 / log2(rank + 1) for the ranks 1 to k."""
    return np.asarray(1.0 / np.log2(np.arange(2.0, k + 2.0)))


@cache
def _bands(k: int) -> tuple[tuple[int, ...], FloatArray]:
    """Return the columns of p that count up to k, and the mean discount of the ranks between their cutoffs."""
    columns = tuple(column for column, cutoff in enumerate(CUTOFFS) if cutoff <= k)
    edges = [0, *(CUTOFFS[column] for column in columns)]
    full = discounts(k)
    weights = [full[low:high].mean() for low, high in pairwise(edges)]
    return columns, np.array(weights) / full[: edges[-1]].sum()


def value(p: FloatArray, k: int) -> FloatArray:
    """Return the expected share (n,) of the large order's discounted gain at k that each candidate carries.

    ``p`` is (n, 4) by `CUTOFFS`, not falling along its rows; k is one of them. A candidate at rank r of the
    large order carries d(r) / sum of d, where d within a band of cutoffs is its mean, so that the values
    of all candidates sum to one where p is exact. What is left out of the large stage is expected to lose
    its value when it lies behind the scored block.
    """
    columns, weights = _bands(k)
    within = np.diff(p[:, columns], axis=1, prepend=0.0)
    return np.asarray(np.maximum(within, 0.0) @ weights)


def expected_loss(p: FloatArray, order: npt.NDArray[np.int64], k: int) -> float:
    """Return the share of discounted gain that answering by ``order`` is expected to lose to the large order.

    Gains fall by band as in `value`; DCG is linear in them. Of fewer than k candidates, the best order has
    no more places than there are candidates. In [0, 1].
    """
    columns, weights = _bands(k)
    drop = weights - np.append(weights[1:], 0.0)
    d = discounts(k)
    kept = d[: min(k, len(order))] @ p[order[:k]][:, columns]
    best = np.array([d[: min(CUTOFFS[column], len(order))].sum() for column in columns])
    ideal = float(drop @ best)
    return float(np.clip((ideal - float(drop @ np.minimum(kept, best))) / ideal, 0.0, 1.0)) if ideal > 0 else 0.0


def margin(p: FloatArray, k: int) -> float:
    """Return the fall of p(k) between the k-th and the next candidate, the k-th most likely first.

    1.0 where there are not more than k candidates: nothing can enter.
    """
    if len(p) <= k:
        return 1.0
    likely = -np.sort(-p[:, CUTOFFS.index(k)])
    return float(likely[k - 1] - likely[k])


def entropy(p: FloatArray, k: int) -> float:
    """Return the summed entropy, in nats, of whether each candidate is in the large stage's top k."""
    inside = np.clip(p[:, CUTOFFS.index(k)], 1e-12, 1.0 - 1e-12)
    return float(-(inside * np.log(inside) + (1.0 - inside) * np.log1p(-inside)).sum())
