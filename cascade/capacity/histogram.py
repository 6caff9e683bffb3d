"""A histogram as Prometheus has it, and the distribution that it tells of."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from cascade.capacity.distribution import Distribution
from cascade.errors import ConfigError

__all__ = ["Histogram"]


@dataclass(frozen=True, slots=True)
class Histogram:
    """Rising ``bounds``, how many values are at or below each, and the count and sum of all."""

    bounds: tuple[float, ...]
    below: tuple[float, ...]
    count: float
    total: float

    def since(self, before: Histogram) -> Histogram:
        """Return what was added since. Raises ConfigError where the bounds are others."""
        if self.bounds != before.bounds:
            raise ConfigError("metrics: buckets are not the same in all: they are of different versions")
        below = tuple(now - then for now, then in zip(self.below, before.below, strict=True))
        return Histogram(self.bounds, below, self.count - before.count, self.total - before.total)

    @property
    def is_possible(self) -> bool:
        """Tell whether counts are finite and fall nowhere."""
        rising = (0.0, *self.below, self.count)
        return math.isfinite(self.total + self.count) and all(low <= high for low, high in pairwise(rising))

    @property
    def share_beyond(self) -> float:
        """Return the share of values above the last bound."""
        return 1.0 - self.below[-1] / self.count

    def distribution(self) -> Distribution:
        """Return one value a bucket, all as far between their bounds, so that the mean is that of all values.

        Where values lie above the last bound, they have the mean that is left for them by buckets that lie half way.
        At least 1 is taken of every value, as of counts. There is a value at least.
        """
        counts = [self.below[0], *(high - low for low, high in pairwise(self.below))]
        beyond = self.count - self.below[-1]
        lows = [min(max(1.0, low), high) for low, high in zip((0.0, *self.bounds[:-1]), self.bounds, strict=True)]
        least = math.fsum(count * low for count, low in zip(counts, lows, strict=True))
        wide = math.fsum(count * (high - low) for count, low, high in zip(counts, lows, self.bounds, strict=True))
        far = 0.5 if beyond or not wide else min(1.0, max(0.0, (self.total - least) / wide))
        values = [low + far * (high - low) for low, high in zip(lows, self.bounds, strict=True)]
        left = self.total - math.fsum(count * value for count, value in zip(counts, values, strict=True))
        points = [*zip(values, counts, strict=True)]
        if beyond:
            points.append((max(self.bounds[-1], left / beyond), beyond))
        return _weighted(points)


def _weighted(points: Sequence[tuple[float, float]]) -> Distribution:
    return Distribution.weighted([(max(1.0, value), count) for value, count in points])
