"""The loss of what is served, where load levels and fallbacks answer a share of the requests."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from cascade.errors import ConfigError
from cascade.statistics.bounds import rate_upper_bound

__all__ = ["Mix", "as_served", "left_for_normal"]

_ROUNDING: Final = 1e-6


@dataclass(frozen=True, slots=True)
class Mix:
    """Which share of requests each level serves, the policy itself first, and how many none does.

    ``fallback_rate`` is a bound that is taken as told; ``fallbacks`` are counted requests, X of N, from which one
    is worked out. Raises ConfigError unless shares sum to 1.
    """

    normal: str
    levels: Mapping[str, float]
    fallback_rate: float | None = None
    fallbacks: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        """Check them."""
        shares = [*self.levels.values()]
        if not all(math.isfinite(share) and share >= 0.0 for share in shares) or abs(sum(shares) - 1.0) > _ROUNDING:
            raise ConfigError("--levels-served: shares of at least 0 that sum to 1 are wanted")
        if not self.levels.get(self.normal, 0.0) > 0.0:
            raise ConfigError(f"--levels-served: the share of {self.normal}, which is to be certified, must be above 0")
        if self.fallback_rate is not None and self.fallbacks is not None:
            raise ConfigError("name either --fallback-rate or --fallbacks")
        if self.fallback_rate is not None and not 0.0 <= self.fallback_rate < 1.0:
            raise ConfigError("--fallback-rate: a share of at least 0 and below 1 is wanted")
        if self.fallbacks is not None and not 0 <= self.fallbacks[0] <= self.fallbacks[1] != 0:
            raise ConfigError("--fallbacks: X/N counts N requests, at least 1, and X of them")

    @property
    def others(self) -> tuple[str, ...]:
        """Return the levels that serve anything beside the policy itself."""
        return tuple(name for name, share in self.levels.items() if name != self.normal and share > 0.0)

    @property
    def falls_back(self) -> bool:
        """Tell whether anything is said of fallbacks."""
        return self.fallback_rate is not None or self.fallbacks is not None

    @property
    def bounds(self) -> int:
        """Return how many bounds stand beside the policy's own, each of which may fail."""
        return len(self.others) + self.falls_back + (self.fallbacks is not None)

    def rate(self, delta: float) -> float:
        """Return the bound on the share of fallbacks, with confidence 1 - delta where it comes from counts."""
        if self.fallbacks is not None:
            return rate_upper_bound(*self.fallbacks, delta)
        return self.fallback_rate or 0.0


def as_served(
    bounds: Mapping[str, float], mix: Mapping[str, float], fallback_rate: float = 0.0, fallback: float = 0.0
) -> float:
    """Return the bound on the mean loss: (1 - f) sum_l w_l U_l + f U_fallback, over the levels of ``mix`` by name.

    Where each bound holds with its share of delta, so does their sum with all of it.
    """
    levels = sum(share * bounds[name] for name, share in mix.items() if share > 0.0)
    return (1.0 - fallback_rate) * levels + fallback_rate * fallback


def left_for_normal(
    epsilon: float, bounds: Mapping[str, float], mix: Mix, fallback_rate: float = 0.0, fallback: float = 0.0
) -> float:
    """Return the epsilon that the policy itself must keep so that what is served keeps ``epsilon``."""
    others = sum(mix.levels[name] * bounds[name] for name in mix.others)
    return ((epsilon - fallback_rate * fallback) / (1.0 - fallback_rate) - others) / mix.levels[mix.normal]
