"""The order that is served, for many sets of candidates sent to the large stage at once."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from cascade.replay.columns import FloatArray, IntArray

__all__ = ["ranks_by_score", "served_orders"]

_NARROW: Final = np.iinfo(np.int16).max


def ranks_by_score(scores: FloatArray) -> IntArray:
    """Return each candidate's rank from 0, highest first; ties in the order given, NaN behind all others."""
    ranks = np.empty(scores.size, dtype=np.int64)
    ranks[np.argsort(-scores, kind="stable")] = np.arange(scores.size)
    return ranks


def served_orders(sent: NDArray[np.bool_], small: FloatArray, large: FloatArray) -> IntArray:
    """Return the orders (S, n) served where the candidates ``sent`` (S, n) went to the large stage.

    Scores (n,) are in first-stage order, NaN where a stage did not score. It is what
    :func:`cascade.policy.merge.merge` gives, one set of candidates after another.
    """
    count = small.size
    unsent = np.where(np.isfinite(small), count + ranks_by_score(small), 2 * count + np.arange(count))
    places = np.where(sent & np.isfinite(large), ranks_by_score(large), unsent)
    narrow = places.astype(np.int16 if 3 * count <= _NARROW else np.int32)  # sorts by radix, several times faster
    return np.argsort(narrow, axis=1, kind="stable")
