"""A fitted order for the candidates that the large stage scored: a model of its own, never the default."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from cascade.calibration.features import Described

__all__ = ["BlockOrder"]

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class BlockOrder:
    """``large`` times the large score plus ``weights`` (P,) times the pair features, as judgements fitted them."""

    large: float
    weights: FloatArray

    def __call__(self, described: Described, large: FloatArray) -> FloatArray:
        """Return the scores (n,) that the block is ordered by, NaN where ``large`` is."""
        return np.asarray(self.large * large + described.pair @ self.weights)
