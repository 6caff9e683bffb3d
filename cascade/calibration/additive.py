"""A sum of one smooth function a feature, evaluated without the library that fitted it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from cascade.calibration.features import Described

__all__ = ["AdditiveModel", "Smooths"]

FloatArray = npt.NDArray[np.float64]

_IN_ONE_THREAD: Final = 200_000
"""Multiplications that a matrix library does in the thread that asks (OpenBLAS: up to 262144). Beyond, it wakes
others and waits for them, which on a busy machine stops the event loop for many times as long as the work takes."""


@dataclass(frozen=True, slots=True)
class Smooths:
    """One piecewise cubic a feature and output, constant outside its knots.

    ``features`` (F,) are column positions, ``knots`` (F, S + 1) rising, and ``coefficients`` (F, S, 4, C)
    the powers 3, 2, 1, 0 of the distance from a piece's left knot. Features of fewer pieces repeat their
    last knot.
    """

    features: npt.NDArray[np.int64]
    knots: FloatArray
    coefficients: FloatArray

    def __call__(self, columns: FloatArray) -> FloatArray:
        """Return the sum over features, (n, C), of columns (n, all features)."""
        rows = max(1, _IN_ONE_THREAD // max(1, self.coefficients.size))
        if len(columns) <= rows:
            return self._sum(columns)
        return np.concatenate([self._sum(columns[start : start + rows]) for start in range(0, len(columns), rows)])

    def _sum(self, columns: FloatArray) -> FloatArray:
        features, pieces, powers, outputs = self.coefficients.shape
        x = np.clip(columns[:, self.features], self.knots[:, 0], self.knots[:, -1])
        piece = (x[:, :, None] >= self.knots[:, 1:-1]).sum(axis=2)
        feature = np.arange(features)
        offset = x - self.knots[feature, piece]
        # One matrix product over (feature, piece, power), of which only the piece that x lies in is not zero.
        basis = np.zeros((len(x), features, pieces, powers))
        square = offset * offset
        basis[np.arange(len(x))[:, None], feature, piece] = np.stack(
            [square * offset, square, offset, np.ones_like(offset)], axis=2
        )
        return np.asarray(basis.reshape(len(x), -1) @ self.coefficients.reshape(-1, outputs))


@dataclass(frozen=True, slots=True)
class AdditiveModel:
    """Outputs (C,) a candidate: intercept, smooth functions of pair and query features, and what is missing."""

    intercept: FloatArray
    pair: Smooths
    query: Smooths
    missing: FloatArray

    def __call__(self, described: Described) -> FloatArray:
        """Return (n, C)."""
        of_query = self.query(described.query[None])
        return self.intercept + of_query + self.pair(described.pair) + described.missing @ self.missing
