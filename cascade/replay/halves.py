"""Divide a query's candidates, and with them its judgements, into two halves by the hash of their ids."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from cascade.metrics import ideal_dcg
from cascade.replay.columns import IntArray
from cascade.replay.queries import Judgement, ReplayedQuery

__all__ = ["cut_of_half", "half_of", "in_second_half", "only"]


def in_second_half(query: ReplayedQuery) -> NDArray[np.bool_]:
    """Return which candidates (n,) are of the second half: the last bit of the SHA-256 of query and document id."""
    start = f"{query.id}\0"
    return np.array([hashlib.sha256((start + name).encode()).digest()[-1] & 1 == 1 for name in query.documents])


def cut_of_half(k: int) -> int:
    """Return the cut-off on half of the candidates that stands for k on all of them."""
    return (k + 1) // 2


def half_of(judgement: Judgement, chosen: NDArray[np.bool_], k: int) -> Judgement:
    """Return the judgement of a list that holds only the ``chosen`` candidates (n,), for nDCG at ``k``.

    Its ideal is over those candidates: which half a judged document that is none would be in is not known.
    """
    return replace(
        judgement,
        ideal=ideal_dcg(judgement.gains[chosen], k),
        total=int(judgement.relevant[chosen].sum()),
    )


def only(orders: IntArray, chosen: NDArray[np.bool_]) -> IntArray:
    """Return orders (A, n) without the candidates that are not ``chosen``, which must be the same in each."""
    return orders[chosen[orders]].reshape(orders.shape[0], -1)
