"""Gains without judgements: what the order of a strong scorer makes each document worth."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["silver_gains"]


def silver_gains(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return 1 / rank by score, highest first, same shape; ties keep the order given, what is not scored (NaN) gains 0."""
    scored = np.flatnonzero(np.isfinite(scores))
    gains = np.zeros(scores.size)
    gains[scored[np.argsort(-scores[scored], kind="stable")]] = 1.0 / np.arange(1, scored.size + 1)
    return gains
