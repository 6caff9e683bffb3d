"""A calibration that works out once what many prices ask of the same query."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from cascade.calibration.calibrated import Calibration, Estimate
from cascade.decision import Estimates
from cascade.replay.columns import FloatArray

__all__ = ["Remembering"]


class Remembering(Calibration):
    """A calibration for the one query that all its calls are about; answers are those of the calibration.

    What it gave is kept and given again, so that nobody may change it.
    """

    def __init__(self, calibration: Calibration) -> None:
        self.__dict__.update(vars(calibration))
        self._calibration = calibration
        self._misfit: str | Literal[False] | None = False
        self._first: Estimate | None = None
        self._again: dict[tuple[int, bytes], FloatArray] = {}
        self._values: dict[tuple[int, int | None], tuple[FloatArray, FloatArray]] = {}
        self._summaries: dict[tuple[int, int], tuple[FloatArray, Estimates]] = {}

    def misfit(self, small: FloatArray, channels: Mapping[str, FloatArray]) -> str | None:
        """Return why the estimates would not hold for the query, None where nothing speaks against."""
        if self._misfit is False:
            self._misfit = self._calibration.misfit(small, channels)
        return self._misfit

    def estimate(self, small: FloatArray, channels: Mapping[str, FloatArray]) -> Estimate:
        """Return the first estimate of the query."""
        if self._first is None:
            self._first = self._calibration.estimate(small, channels)
        return self._first

    def estimate_again(self, first: Estimate, large: FloatArray, k: int) -> FloatArray:
        """Return the second estimate, once for each set of candidates that has large scores."""
        key = k, large.tobytes()
        if key not in self._again:
            self._again[key] = self._calibration.estimate_again(first, large, k)
        return self._again[key]

    def value(self, p: FloatArray, k: int | None = None) -> FloatArray:
        """Return the values of an estimate that was given before; it is kept with them, so that no other has its id."""
        key = id(p), k
        if key not in self._values:
            self._values[key] = p, self._calibration.value(p, k)
        return self._values[key][1]

    def summary(self, p: FloatArray, small_order: NDArray[np.int64], k: int) -> Estimates:
        """Return what an estimate that was given before says of the small order, which is always the same."""
        key = id(p), k
        if key not in self._summaries:
            self._summaries[key] = p, self._calibration.summary(p, small_order, k)
        return self._summaries[key][1]
