"""Compare an estimate with a bound. The one place where a decision's boundary is drawn."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

__all__ = ["above", "at_least", "at_most", "best_first"]

_SLACK: Final = 1e-9
"""Relative: what the last bits of two machines may differ by does not decide."""
_DIGITS: Final = 12
"""Decimals of a probability that an order goes by."""


def best_first(values: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """Return the order of falling ``values``, shares in [0, 1] or -inf. What differs by rounding keeps the order given."""
    return np.asarray(np.argsort(-np.round(values, _DIGITS), kind="stable"))


def above(values: npt.NDArray[np.float64], bound: float) -> npt.NDArray[np.bool_]:
    """Return where ``values`` exceed ``bound`` by more than rounding. NaN exceeds nothing."""
    return np.asarray(values > bound + _SLACK * abs(bound))


def at_least(value: float, bound: float, noise: float = 0.0) -> bool:
    """Tell whether ``value`` clears ``bound`` even if it was measured too high by ``noise``."""
    return value - noise >= bound - _SLACK * abs(bound)


def at_most(value: float, bound: float, noise: float = 0.0) -> bool:
    """Tell whether ``value`` stays within ``bound`` even if it was measured too low by ``noise``."""
    return value + noise <= bound + _SLACK * abs(bound)
