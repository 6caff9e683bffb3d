"""A percentile over queries, and an interval that no distribution is assumed for."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np

from cascade.replay.columns import FloatArray
from cascade.replay.intervals import CONFIDENCE, LEAST_QUERIES, Figure, undefined

__all__ = ["percentile"]


def percentile(values: FloatArray, share: float, untold: str) -> Figure:
    """Return the least of the values (Q,) that a share of them does not exceed, NaN undefined for the reason ``untold``.

    The interval is between order statistics, whose ranks are those of a binomial count (Conover,
    Practical Nonparametric Statistics, 3.2), here by its normal approximation. An end that would lie
    beyond the values is None: so few queries do not bound it.
    """
    if np.isnan(values).any():
        return undefined(untold)
    ordered, count = np.sort(values), values.size
    value = float(ordered[max(0, math.ceil(share * count) - 1)])
    if count < LEAST_QUERIES:
        return Figure(value, None, f"fewer than {LEAST_QUERIES} queries")
    reach = NormalDist().inv_cdf((1.0 + CONFIDENCE) / 2.0) * math.sqrt(count * share * (1.0 - share))
    low, high = math.floor(share * count - reach), math.ceil(share * count + reach)
    ends = (float(ordered[low - 1]) if low >= 1 else None, float(ordered[high - 1]) if high <= count else None)
    return Figure(value, ends, "too few queries to bound it on both sides" if None in ends else None)
