"""Fit the second round: how a query strays from what is usual, and what large scores seen say of the rest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
from sklearn.linear_model import LogisticRegression

from cascade.calibration.artefact import SecondRoundModel
from cascade.calibration.build import second_round_of
from cascade.calibration.calibrated import Estimate
from cascade.calibration.gain import CUTOFFS, value
from cascade.calibration.second_round import FEATURES
from cascade.fit.entry import CERTAIN
from cascade.fit.training import TrainingQuery, top_c

__all__ = ["fit_second_round"]

FloatArray = npt.NDArray[np.float64]

_BINS: Final = 6
_STEPS: Final = 15
_SETS: Final = 4
_SIZES: Final = (6, 8, 10, 12, 16, 20, 26, 34, 45)
_START: Final = 0.1
_LEAST: Final = 1e-6


def fit_second_round(
    queries: Sequence[TrainingQuery],
    estimates: Sequence[Estimate],
    channels: tuple[str, ...],
    k: int,
    scale: float,
    seed: int,
) -> SecondRoundModel | None:
    """Fit on cross-fitted first estimates of the same queries; None where too little is left to learn from.

    The random effects and the noise by bin of mu come from EM on the residuals of all candidates; the logistic
    regressions from scored sets drawn as the first round chooses them, the most valuable first, so that what
    is seen is not selected by the large score.
    """
    rng = np.random.default_rng(seed)
    residuals = [
        np.where(np.isfinite(query.large), query.large / scale - estimate.mu, np.nan)
        for query, estimate in zip(queries, estimates, strict=True)
    ]
    effects = [estimate.described.effects for estimate in estimates]
    bins = np.unique(np.quantile(np.concatenate([e.mu for e in estimates]), np.linspace(0, 1, _BINS + 1)[1:-1]))
    bin_of = [np.searchsorted(bins, estimate.mu, side="right") for estimate in estimates]
    covariance, noise = _random_effects(effects, residuals, bin_of, len(bins) + 1)
    shape = (len(CUTOFFS), len(FEATURES))
    model = SecondRoundModel(
        least_scored=_SIZES[0],
        scale=scale,
        covariance=_rows(covariance),
        bins=tuple(map(float, bins)),
        noise=tuple(map(float, noise)),
        centre=_rows(np.zeros(shape)),
        spread=_rows(np.ones(shape)),
        weights=_rows(np.zeros(shape)),
        intercept=(0.0,) * len(CUTOFFS),
    )
    described = second_round_of(model, channels)
    assert described is not None  # noqa: S101  # nosec B101 # it was just given
    rows, targets = [], []
    for query, estimate in zip(queries, estimates, strict=True):
        worth = value(estimate.p, k)
        by_value = np.argsort(-worth, kind="stable")
        by_value = by_value[np.isfinite(query.large[by_value])]
        in_top = top_c(query.large)
        for size in rng.choice(_SIZES, _SETS):
            if size >= len(by_value):
                continue
            seen = np.full(len(query.large), np.nan)
            seen[by_value[:size]] = query.large[by_value[:size]]
            features = described.features(estimate.described, estimate.logits, estimate.mu, worth, seen)
            rows.append(features[by_value[size:]])
            targets.append(in_top[by_value[size:]])
    if not rows:
        return None
    table, entered = np.concatenate(rows), np.concatenate(targets)
    centre, spread = table.mean(axis=0), np.maximum(table.std(axis=0), _LEAST)
    standard = (table - centre) / spread
    weights, intercept = np.zeros(shape), np.zeros(len(CUTOFFS))
    for column in range(len(CUTOFFS)):
        if len(set(entered[:, column].tolist())) < 2:
            intercept[column] = CERTAIN if entered[0, column] else -CERTAIN
            continue
        fitted = LogisticRegression(C=1.0, solver="newton-cholesky", max_iter=200)
        fitted.fit(standard[:, column], entered[:, column])
        weights[column], intercept[column] = fitted.coef_[0], fitted.intercept_[0]
    return model.model_copy(
        update={
            "centre": _rows(centre),
            "spread": _rows(spread),
            "weights": _rows(weights),
            "intercept": tuple(map(float, intercept)),
        }
    )


def _random_effects(
    effects: Sequence[FloatArray], residuals: Sequence[FloatArray], bin_of: Sequence[npt.NDArray[np.int64]], bins: int
) -> tuple[FloatArray, FloatArray]:
    """Estimate Sigma (E, E) and the noise variance by bin (B,) by EM, with as many steps as settle it."""
    width = effects[0].shape[1]
    covariance = np.eye(width) * _START
    known = [np.isfinite(residual) for residual in residuals]
    pooled = np.concatenate([r[ok] for r, ok in zip(residuals, known, strict=True)])
    noise = np.full(bins, max(_LEAST, float(pooled.var())))
    for _ in range(_STEPS):
        precision = np.linalg.inv(covariance)
        second_moment = np.zeros((width, width))
        squared, counted = np.zeros(bins), np.zeros(bins)
        for b, r, ok, at in zip(effects, residuals, known, bin_of, strict=True):
            design, rest, its_bin = b[ok], r[ok], at[ok]
            weighted = design.T / noise[its_bin]
            spread = np.linalg.inv(weighted @ design + precision)
            mean = spread @ (weighted @ rest)
            second_moment += np.outer(mean, mean) + spread
            error = (rest - design @ mean) ** 2 + np.einsum("ni,ij,nj->n", design, spread, design)
            squared += np.bincount(its_bin, error, minlength=bins)
            counted += np.bincount(its_bin, minlength=bins)
        covariance = second_moment / len(effects) + np.eye(width) * _LEAST
        noise = np.maximum(_LEAST, np.where(counted > 0, squared / np.maximum(counted, 1), noise))
    return covariance, noise


def _rows(table: FloatArray) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(map(float, row)) for row in table)
