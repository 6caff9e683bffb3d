"""How a count is distributed over queries or pairs: few values, each with its share."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Self

__all__ = ["Distribution"]

_STEPS: Final = 64
"""Points that stand for what lies between two stated quantiles."""


@dataclass(frozen=True, slots=True)
class Distribution:
    """Values in ascending order, and their shares, which sum to 1."""

    values: tuple[float, ...]
    shares: tuple[float, ...]

    @classmethod
    def constant(cls, value: float) -> Self:
        """Return the distribution of a count that is always the same."""
        return cls((float(value),), (1.0,))

    @classmethod
    def weighted(cls, weights: Iterable[tuple[float, float]]) -> Self:
        """Return (value, weight) with shares in proportion to the weights, which are not all zero."""
        pairs = sorted(weights)
        total = math.fsum(weight for _, weight in pairs)
        kept = [(float(value), weight / total) for value, weight in pairs if weight > 0]
        return cls(tuple(value for value, _ in kept), tuple(share for _, share in kept))

    @classmethod
    def from_quantiles(cls, points: Iterable[tuple[float, float]]) -> Self:
        """Return what lies on straight lines between (probability, value), from probability 0 to 1.

        Between two points stand 64 values of equal share, so that the mean is exact. Counts are whole: each
        is rounded.
        """
        weights: dict[float, float] = {}
        for (low, least), (high, most) in pairwise(points):
            for step in range(_STEPS):
                value = round(least + (most - least) * (step + 0.5) / _STEPS)
                weights[value] = weights.get(value, 0.0) + (high - low) / _STEPS
        return cls.weighted(weights.items())

    @property
    def mean(self) -> float:
        """Return the mean value."""
        return self.mean_of(lambda value: value)

    def mean_of(self, what: Callable[[float], float]) -> float:
        """Return the mean of a function of the value."""
        return math.fsum(share * what(value) for value, share in zip(self.values, self.shares, strict=True))

    def share_above(self, bound: float) -> float:
        """Return the share of values above a bound."""
        return self.mean_of(lambda value: float(value > bound))
