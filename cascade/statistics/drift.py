"""How far a sample of numbers has moved from another: by shares of equal-mass bins, and by the largest gap."""

from __future__ import annotations

import math
from typing import Final

import numpy as np
import numpy.typing as npt

from cascade.errors import ConfigError
from cascade.statistics.sample import FloatArray, finite

__all__ = [
    "LEAST_FOR_KS_P",
    "bin_edges",
    "bin_shares",
    "index_of_shares",
    "ks_distance",
    "ks_p_value",
    "stability_index",
]

LEAST_FOR_KS_P: Final = 458
"""Values in each sample from which `ks_p_value` is a bound."""
_SMOOTHING: Final = 0.5


def stability_index(reference: npt.ArrayLike, sample: npt.ArrayLike, bins: int = 10) -> float:
    """Return the population stability index, sum of (a - e) ln(a / e) over bins with an equal share of ``reference``.

    Values that are often the same make fewer bins, and one that fills a bin has it to itself: else what moves from it
    downwards would stay in its bin. Half a value is added to each bin. Where nothing moved it is about
    (bins - 1)(1/n + 1/m); 0.1 is watched and 0.25 acted upon by custom. Raises ConfigError.
    """
    before, after = finite("reference", reference), finite("sample", sample)
    edges = bin_edges(before, bins)
    return index_of_shares(bin_shares(edges, before), bin_shares(edges, after))


def bin_edges(reference: FloatArray, bins: int = 10) -> FloatArray:
    """Return the edges (m,), rising, of bins with an equal share of ``reference`` each; a value at an edge is below it.

    Raises ConfigError.
    """
    if bins < 2:
        raise ConfigError(f"bins: {bins} are fewer than 2")
    quantiles = np.unique(np.quantile(reference, np.arange(1, bins) / bins))
    same = (reference[:, np.newaxis] == quantiles).sum(axis=0)
    alone = quantiles[same * bins >= reference.size]
    return np.union1d(quantiles, np.nextafter(alone, -np.inf))


def bin_shares(edges: npt.ArrayLike, values: npt.ArrayLike) -> FloatArray:
    """Return the share of values in each bin (m + 1,), half a value added to each."""
    within = np.asarray(edges, dtype=np.float64)
    places = np.searchsorted(within, np.asarray(values, dtype=np.float64), side="left")
    counts = np.bincount(places, minlength=within.size + 1) + _SMOOTHING
    return np.asarray(counts / counts.sum())


def index_of_shares(expected: npt.ArrayLike, found: npt.ArrayLike) -> float:
    """Return the population stability index of shares by bin, none of them 0."""
    e, a = np.asarray(expected, dtype=np.float64), np.asarray(found, dtype=np.float64)
    return float(((a - e) * np.log(a / e)).sum())


def ks_distance(reference: npt.ArrayLike, sample: npt.ArrayLike) -> float:
    """Return the largest gap between the distribution functions of two samples, 0 to 1. Raises ConfigError."""
    before, after = np.sort(finite("reference", reference)), np.sort(finite("sample", sample))
    at = np.concatenate([before, after])
    gaps = (
        np.searchsorted(before, at, side="right") / before.size - np.searchsorted(after, at, side="right") / after.size
    )
    return float(np.abs(gaps).max())


def ks_p_value(distance: float, count: int) -> float:
    """Return a bound for the probability of such a gap, or a larger, between two samples of ``count`` of one law.

    2 exp(-count distance^2): the inequality of Dvoretzky, Kiefer and Wolfowitz with Massart's constant holds for two
    samples of equal size from 458 on (Wei and Dudley, "Two-sample Dvoretzky-Kiefer-Wolfowitz inequalities", 2012).
    For a single look. Raises ConfigError for fewer.
    """
    if count < LEAST_FOR_KS_P:
        raise ConfigError(f"count: {count} is fewer than {LEAST_FOR_KS_P}")
    return min(1.0, 2.0 * math.exp(-count * distance**2))
