"""Mixture sequential probability ratio test: p-values of a guardrail that only fall, and hold whenever one looks.

Johari, Koomen, Pekelis and Walsh, "Always valid inference" (Operations Research 2022): the likelihood ratio of the mean
against theta, averaged over means drawn from N(theta, tau^2).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from cascade.errors import ConfigError
from cascade.statistics.sample import FloatArray, finite

__all__ = ["Msprt", "msprt_p_values"]


@dataclass(frozen=True, slots=True)
class Msprt:
    """The two-sided test that the mean is ``theta``, after ``count`` values. Without values it is the start.

    ``variance`` is that of one value, known beforehand and not estimated on the way. For values in an
    interval of width w, w^2/4 is enough whatever their law (1/4 for a yes or no): the test is then valid,
    if cautious. ``tau`` is about the size of a deviation that matters; ``total`` is the sum of value - theta.
    """

    variance: float
    tau: float
    theta: float = 0.0
    count: int = 0
    total: float = 0.0
    p: float = 1.0

    def __post_init__(self) -> None:
        """Refuse a variance or tau that is not a positive number, and a theta that is none, with ConfigError."""
        for name, value in (("variance", self.variance), ("tau", self.tau)):
            if not (math.isfinite(value) and value > 0.0):
                raise ConfigError(f"{name}: {value:g} is not a positive number")
        finite("theta", [self.theta])

    def update(self, value: float) -> Msprt:
        """Return the test after one value more. Raises ConfigError for NaN or an infinite one."""
        finite("values", [value])
        count, total = self.count + 1, self.total + (value - self.theta)
        wide = self.variance + count * self.tau * self.tau
        drift = self.tau * total
        log_ratio = (math.log(self.variance / wide) + drift * drift / (self.variance * wide)) / 2.0
        return replace(self, count=count, total=total, p=min(self.p, math.exp(-log_ratio)))


def msprt_p_values(values: npt.ArrayLike, variance: float, tau: float, theta: float = 0.0) -> FloatArray:
    """Return the p-value after each value of streams (..., T), same shape: the same test as ``Msprt``."""
    start = Msprt(variance, tau, theta)
    found = np.asarray(values, dtype=np.float64)
    finite("values", found.ravel())
    total = (found - start.theta).cumsum(axis=-1)
    wide = start.variance + np.arange(1, found.shape[-1] + 1) * start.tau**2
    log_ratio = (np.log(start.variance / wide) + (start.tau * total) ** 2 / (start.variance * wide)) / 2.0
    return np.minimum(1.0, np.exp(-np.maximum.accumulate(log_ratio, axis=-1)))
