"""Intervals for a mean that cover it at every count at once, so that one may look and stop at any of them.

Waudby-Smith, Arbour, Sinha, Kennedy and Ramdas, "Time-uniform central limit theory and asymptotic confidence sequences"
(Annals of Statistics 2024), theorem 2.2. Asymptotic: it asks nothing of the law but a variance, and promises coverage
only as the first look gets late. To be careful early, the variance starts from a prior of one value.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from cascade.errors import ConfigError
from cascade.statistics.sample import FloatArray, between, finite, not_negative

__all__ = ["ConfidenceSequence", "confidence_bounds", "planned_rho"]


def planned_rho(count: int, alpha: float) -> float:
    """Return the rho that makes the interval about as narrow as it can be after ``count`` values."""
    if count < 1:
        raise ConfigError(f"count: {count} is not at least 1")
    nats = -2.0 * math.log(between("alpha", alpha, 0.0, 1.0))
    return math.sqrt((nats + math.log1p(nats)) / count)


@dataclass(frozen=True, slots=True)
class ConfidenceSequence:
    """The sequence at level 1 - alpha after ``count`` values. Without values it is the start.

    ``prior`` is a squared deviation counted as one value more: 1, the most that a loss in [-1, 1] can
    have, keeps the interval open while values that are mostly zero have shown nothing else.
    ``squares`` is the sum of squared deviations from the mean.
    """

    alpha: float
    rho: float
    prior: float = 1.0
    count: int = 0
    mean: float = 0.0
    squares: float = 0.0

    def __post_init__(self) -> None:
        """Refuse an alpha outside (0, 1), a rho that is not positive and a negative prior with ConfigError."""
        between("alpha", self.alpha, 0.0, 1.0)
        between("rho", self.rho, 0.0, math.inf)
        not_negative("prior", self.prior)

    def update(self, value: float) -> ConfidenceSequence:
        """Return the sequence after one value more. Raises ConfigError for NaN or an infinite one."""
        finite("values", [value])
        count = self.count + 1
        mean = self.mean + (value - self.mean) / count
        return replace(self, count=count, mean=mean, squares=self.squares + (value - self.mean) * (value - mean))

    @property
    def interval(self) -> tuple[float, float] | None:
        """Return the interval, None before the first value."""
        if not self.count:
            return None
        spread = math.sqrt((self.prior + self.squares) / (self.count + 1))
        grown = self.count * self.rho**2 + 1.0
        half = spread * math.sqrt(
            2.0 * grown * (0.5 * math.log(grown) - math.log(self.alpha)) / (self.count * self.rho) ** 2
        )
        return self.mean - half, self.mean + half


def confidence_bounds(
    values: npt.ArrayLike, alpha: float, rho: float, prior: float = 1.0
) -> tuple[FloatArray, FloatArray]:
    """Return the lower and upper ends after each value of streams (..., T), same shape, as ``ConfidenceSequence``."""
    start = ConfidenceSequence(alpha, rho, prior)
    found = np.asarray(values, dtype=np.float64)
    finite("values", found.ravel())
    count = np.arange(1, found.shape[-1] + 1)
    means = found.cumsum(axis=-1) / count
    squares = np.maximum((found**2).cumsum(axis=-1) - count * means**2, 0.0)
    grown = count * start.rho**2 + 1.0
    nats = 0.5 * np.log(grown) - math.log(start.alpha)
    half = np.sqrt((start.prior + squares) / (count + 1) * 2.0 * grown * nats) / (count * start.rho)
    return means - half, means + half
