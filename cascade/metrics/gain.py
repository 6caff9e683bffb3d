"""What a grade is worth."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Any, assert_never

import numpy as np
from numpy.typing import NDArray

__all__ = ["Gain", "gains_of"]


class Gain(StrEnum):
    """How a grade becomes a gain: the grade itself, or 2^grade - 1 (Burges et al., 2005)."""

    LINEAR = "linear"
    EXPONENTIAL = "exponential"


def gains_of(grades: Sequence[int] | NDArray[Any], gain: Gain) -> NDArray[np.float64]:
    """Return the gain of each grade, same shape. Grades below one, -1 for unjudged among them, gain nothing."""
    positive = np.maximum(np.asarray(grades, dtype=np.float64), 0.0)
    match gain:
        case Gain.LINEAR:
            return positive
        case Gain.EXPONENTIAL:
            return np.exp2(positive) - 1.0
        case _:
            assert_never(gain)
