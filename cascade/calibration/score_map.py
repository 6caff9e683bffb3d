"""Map a stage's raw score to the probability that the document is relevant."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["Isotonic", "Platt", "ScoreMap"]

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Platt:
    """sigmoid(slope * score + intercept); Platt 1999. The slope is not negative: the order stays."""

    slope: float
    intercept: float

    def __call__(self, score: float) -> float:
        """Return the probability."""
        odds = min(700.0, max(-700.0, self.slope * score + self.intercept))
        return float(1.0 / (1.0 + np.exp(-odds)))


@dataclass(frozen=True, slots=True)
class Isotonic:
    """A rising step curve through (scores, probabilities), linear between and constant outside."""

    scores: FloatArray
    probabilities: FloatArray

    def __call__(self, score: float) -> float:
        """Return the probability."""
        return float(np.interp(score, self.scores, self.probabilities))


ScoreMap = Platt | Isotonic
