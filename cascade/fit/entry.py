"""Fit entry probabilities: cubic splines and logistic regression, made into piecewise cubics for serving."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from scipy.interpolate import BSpline
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.preprocessing import SplineTransformer

from cascade.calibration.artefact import EntryModel, SmoothTable
from cascade.calibration.features import pair_feature_names, query_feature_names
from cascade.calibration.gain import CUTOFFS
from cascade.fit.training import Examples

__all__ = ["CERTAIN", "FittedEntry", "fit_entry"]

FloatArray = npt.NDArray[np.float64]

_KNOTS: Final = 6
_LOGISTIC_C: Final = 0.3
_RIDGE: Final = 10.0
CERTAIN: Final = 700.0
"""The logit of what was always true in training."""


@dataclass(frozen=True, slots=True)
class _Spline:
    """One feature's basis: which column, the fitted transformer, and its knots."""

    column: int
    transformer: Any
    knots: FloatArray


@dataclass(frozen=True, slots=True)
class FittedEntry:
    """The scikit-learn models, kept to be compared with what serving evaluates.

    ``basis`` lists the splines of pair features, then of query features; the design matrix is their
    columns in turn and then the indicators of missing scores.
    """

    channels: tuple[str, ...]
    pair: Sequence[_Spline]
    query: Sequence[_Spline]
    classifiers: Sequence[Any]
    expected_large: Any

    def design(self, data: Examples) -> FloatArray:
        """Return the design matrix (R, B)."""
        return _design(self.pair, self.query, data)

    def probabilities(self, data: Examples) -> FloatArray:
        """Return p (R, 4) as scikit-learn computes it, nested over cutoffs."""
        design = self.design(data)
        p = np.stack([_positive(model, design) for model in self.classifiers], axis=1)
        return np.asarray(np.maximum.accumulate(p, axis=1))

    def to_model(self) -> EntryModel:
        """Return the same functions as piecewise cubics."""
        weights = np.stack([*(_weights(model, self) for model in self.classifiers), self.expected_large.coef_], axis=1)
        intercept = [*(_intercept(model) for model in self.classifiers), float(self.expected_large.intercept_)]
        pair_width = sum(spline.transformer.n_features_out_ for spline in self.pair)
        query_width = sum(spline.transformer.n_features_out_ for spline in self.query)
        pair, query, missing = np.split(weights, [pair_width, pair_width + query_width])
        return EntryModel(
            intercept=tuple(intercept),
            pair=_table(self.pair, pair, pair_feature_names(self.channels)),
            query=_table(self.query, query, query_feature_names(self.channels)),
            missing=tuple(tuple(map(float, row)) for row in missing),
        )


def fit_entry(data: Examples, channels: Sequence[str], standard_large: FloatArray) -> FittedEntry:
    """Fit p(c) by logistic regression on splines of every feature, and the large score by ridge regression.

    ``standard_large`` (R,) is the large score in units of its spread. Knots are quantiles of the training
    pairs. A cutoff that is always or never true gets a constant.
    """
    pair, query = _splines(data.pair), _splines(data.query)
    design = _design(pair, query, data)
    classifiers = [_classifier(design, data.in_top[:, column]) for column in range(len(CUTOFFS))]
    return FittedEntry(tuple(channels), pair, query, classifiers, Ridge(alpha=_RIDGE).fit(design, standard_large))


def _splines(columns: FloatArray) -> list[_Spline]:
    found = []
    for column in range(columns.shape[1]):
        knots = np.unique(np.quantile(columns[:, column], np.linspace(0.0, 1.0, _KNOTS)))
        if len(knots) < 2 or np.diff(knots).min() <= 1e-9 * max(1.0, float(np.abs(knots).max())):
            knots = _apart(knots)
        if len(knots) < 2:
            continue  # a constant says nothing
        transformer = SplineTransformer(degree=3, knots=knots[:, None], extrapolation="constant", include_bias=False)
        found.append(_Spline(column, transformer.fit(columns[:, [column]]), knots))
    return found


def _apart(knots: FloatArray) -> FloatArray:
    """Drop knots that rounding cannot tell from the one before."""
    kept = knots[:1]
    for knot in knots[1:]:
        if knot - kept[-1] > 1e-9 * max(1.0, float(np.abs(knots).max())):
            kept = np.append(kept, knot)
    return kept


def _design(pair: Sequence[_Spline], query: Sequence[_Spline], data: Examples) -> FloatArray:
    parts = [spline.transformer.transform(data.pair[:, [spline.column]]) for spline in pair]
    parts += [spline.transformer.transform(data.query[:, [spline.column]]) for spline in query]
    return np.concatenate([*parts, data.missing], axis=1)


def _classifier(design: FloatArray, positive: npt.NDArray[np.bool_]) -> Any:
    if positive.all() or not positive.any():
        return float(positive[0])
    return LogisticRegression(C=_LOGISTIC_C, solver="newton-cholesky", max_iter=200).fit(design, positive)


def _positive(model: Any, design: FloatArray) -> FloatArray:
    return np.full(len(design), model) if isinstance(model, float) else model.predict_proba(design)[:, 1]


def _weights(model: Any, fitted: FittedEntry) -> FloatArray:
    return np.zeros_like(fitted.expected_large.coef_) if isinstance(model, float) else model.coef_[0]


def _intercept(model: Any) -> float:
    if isinstance(model, float):
        return CERTAIN if model else -CERTAIN
    return float(model.intercept_[0])


def _table(splines: Sequence[_Spline], weights: FloatArray, names: tuple[str, ...]) -> SmoothTable:
    """Turn spline weights (B, C) into cubics by piece, padded to as many pieces for every feature."""
    pieces = max((len(spline.knots) - 1 for spline in splines), default=1)
    knots, coefficients, start = [], [], 0
    for spline in splines:
        width = spline.transformer.n_features_out_
        mine = np.vstack([weights[start : start + width], np.zeros(weights.shape[1])])  # the bias column is left out
        start += width
        basis = spline.transformer.bsplines_[0]
        curve = BSpline(basis.t, mine, basis.k)
        by_piece = np.stack(
            [curve(spline.knots[:-1], nu=power) / math.factorial(power) for power in (3, 2, 1, 0)], axis=1
        )
        lacking = pieces - len(by_piece)
        last = np.full(lacking, spline.knots[-1])
        knots.append(tuple(map(float, np.append(spline.knots, last))))
        at_end = np.zeros((4, weights.shape[1]))
        at_end[3] = curve(spline.knots[-1])
        padded = np.concatenate([by_piece, np.repeat(at_end[None], lacking, axis=0)])
        coefficients.append(tuple(tuple(tuple(map(float, power)) for power in piece) for piece in padded))
    return SmoothTable(
        features=tuple(names[spline.column] for spline in splines),
        knots=tuple(knots),
        coefficients=tuple(coefficients),
    )
