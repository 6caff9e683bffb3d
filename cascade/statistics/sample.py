"""Refuse numbers that no test can be made on, by name."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from cascade.errors import ConfigError

__all__ = ["FloatArray", "between", "finite", "not_negative"]

FloatArray = npt.NDArray[np.float64]


def finite(name: str, values: npt.ArrayLike) -> FloatArray:
    """Return one or more values as floats (n,).

    Raises ConfigError for another shape, none at all, and the first that is NaN or infinite, by its number from 0.
    """
    found = np.asarray(values, dtype=np.float64)
    if found.ndim != 1 or not found.size:
        raise ConfigError(f"{name}: one number a query is wanted, of one query or more")
    wrong = np.flatnonzero(~np.isfinite(found))
    if wrong.size:
        raise ConfigError(f"{name}: {wrong.size} of {found.size} are not finite, the first is number {wrong[0]}")
    return found


def between(name: str, value: float, low: float, high: float) -> float:
    """Return a number strictly between two. Raises ConfigError."""
    if not low < value < high:
        raise ConfigError(f"{name}: {value:g} is not between {low:g} and {high:g}")
    return float(value)


def not_negative(name: str, value: float) -> float:
    """Return a finite number of at least zero. Raises ConfigError."""
    if not (math.isfinite(value) and value >= 0.0):
        raise ConfigError(f"{name}: {value:g} is not a number of at least 0")
    return float(value)
