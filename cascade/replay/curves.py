"""What share of the way from the small to the large stage's quality a policy goes, at what share of the cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from cascade.replay.columns import FloatArray
from cascade.replay.intervals import Figure, Resamples, figure
from cascade.replay.sweep import Sweep

__all__ = [
    "LEVELS",
    "Curve",
    "Ends",
    "area_10_50",
    "cost_at_recovered",
    "curve_of",
    "ends_of",
    "gap_is_shown",
    "quality_at_cost",
]

LEVELS: Final = (0.80, 0.90, 0.95, 0.98)
"""Shares of the small-to-large difference at which costs are reported."""
_AREA_COSTS: Final = np.linspace(0.10, 0.50, 81)


@dataclass(frozen=True, slots=True)
class Ends:
    """Quality of always-small and always-large and the pairs of always-large, a query's mean, in each resample."""

    small: FloatArray
    large: FloatArray
    pairs: FloatArray

    @property
    def gap(self) -> FloatArray:
        """Return by how much the large stage is better."""
        return self.large - self.small


@dataclass(frozen=True, slots=True)
class Curve:
    """A sweep's means in each resample, cheapest first; arrays (1 + B, S + 1).

    ``share`` is of always-large's pairs. ``recovered`` is (Q - Q_small) / (Q_large - Q_small), minus
    infinity where that difference is not above zero. The first point is always-small: between it and
    a policy's cheapest setting, as between settings, lies what a coin that chooses between them gives.
    ``settings`` (S + 1) is what each point of the sample is of, None for always-small.
    """

    share: FloatArray
    quality: FloatArray
    recovered: FloatArray
    settings: tuple[float | None, ...]


def ends_of(small: Sweep, large: Sweep, resamples: Resamples) -> Ends:
    """Return the two ends that every curve runs between."""
    return Ends(
        resamples.means(small.quality)[:, 0], resamples.means(large.quality)[:, 0], resamples.means(large.pairs)[:, 0]
    )


def gap_is_shown(ends: Ends, queries: int) -> tuple[bool, Figure]:
    """Tell whether the large stage is better than the small one, beyond its interval, and by how much."""
    found = figure(ends.gap, queries, "not defined")
    low = found.interval[0] if found.interval else None
    return low is not None and low > 0.0, found


def curve_of(sweep: Sweep, ends: Ends, resamples: Resamples) -> Curve:
    """Return the curve of a sweep in each resample."""
    share = resamples.means(sweep.pairs) / ends.pairs[:, None]
    quality = resamples.means(sweep.quality)
    share = np.concatenate([np.zeros((share.shape[0], 1)), share], axis=1)
    quality = np.concatenate([ends.small[:, None], quality], axis=1)
    cheapest_first = np.argsort(share, axis=1, kind="stable")
    share = np.take_along_axis(share, cheapest_first, axis=1)
    quality = np.take_along_axis(quality, cheapest_first, axis=1)
    gap = ends.gap[:, None]
    recovered = np.full_like(quality, -np.inf)
    np.divide(quality - ends.small[:, None], gap, out=recovered, where=np.broadcast_to(gap > 0.0, quality.shape))
    settings = (None, *sweep.settings)
    return Curve(share, quality, recovered, tuple(settings[at] for at in cheapest_first[0]))


def cost_at_recovered(curve: Curve, level: float) -> FloatArray:
    """Return (1 + B,) the least share of pairs at which ``level`` is recovered, infinity where it never is.

    Linear between settings, as Ong et al. measure routers (RouteLLM, 2024).
    """
    reached = curve.recovered >= level
    after = np.argmax(reached, axis=1)[:, None]
    before = np.maximum(after - 1, 0)
    share = [np.take_along_axis(curve.share, at, axis=1)[:, 0] for at in (before, after)]
    recovered = [np.take_along_axis(curve.recovered, at, axis=1)[:, 0] for at in (before, after)]
    found = reached.any(axis=1) & (after[:, 0] > 0)
    part = np.zeros(found.size)
    rise = np.subtract(recovered[1], recovered[0], out=np.ones(found.size), where=found)
    np.divide(np.subtract(level, recovered[0], out=np.zeros(found.size), where=found), rise, out=part)
    return np.where(found, share[0] + part * (share[1] - share[0]), np.inf)


def area_10_50(curve: Curve) -> FloatArray:
    """Return (1 + B,) the mean share recovered over costs from 0.10 to 0.50.

    Above its most expensive setting a policy keeps what it reached. Minus infinity where nothing can
    be recovered.
    """
    areas = np.full(curve.share.shape[0], -np.inf)
    for row in np.flatnonzero(np.isfinite(curve.recovered).all(axis=1)):
        at = np.interp(_AREA_COSTS, curve.share[row], curve.recovered[row])
        areas[row] = (at.sum() - (at[0] + at[-1]) / 2.0) / (at.size - 1)
    return areas


def quality_at_cost(curve: Curve, share: FloatArray) -> FloatArray:
    """Return (1 + B,) the quality at a share of pairs (1 + B,) of its own in each resample."""
    rows = zip(share, curve.share, curve.quality, strict=True)
    return np.array([np.interp(at, shares, qualities) for at, shares, qualities in rows])
