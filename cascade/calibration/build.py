"""Make evaluators from the tables of an artefact. ValueError where tables do not fit together."""

from __future__ import annotations

from typing import assert_never

import numpy as np

from cascade.calibration.additive import AdditiveModel, Smooths
from cascade.calibration.artefact import EntryModel, FinalOrder, IsotonicMap, PlattMap, SecondRoundModel, SmoothTable
from cascade.calibration.features import pair_feature_names, query_feature_names
from cascade.calibration.final_order import BlockOrder
from cascade.calibration.gain import CUTOFFS
from cascade.calibration.score_map import Isotonic, Platt, ScoreMap
from cascade.calibration.second_round import FEATURES, SecondRound

__all__ = ["entry_of", "final_order_of", "score_map_of", "second_round_of"]


def entry_of(model: EntryModel, channels: tuple[str, ...]) -> AdditiveModel:
    """Return the entry model over the features of these channels."""
    outputs = len(CUTOFFS) + 1
    intercept = np.array(model.intercept)
    missing = np.array(model.missing, dtype=np.float64)
    if intercept.shape != (outputs,) or missing.shape != (len(channels) + 1, outputs):
        raise ValueError("intercept or missing")
    pair = _smooths(model.pair, pair_feature_names(channels), outputs)
    query = _smooths(model.query, query_feature_names(channels), outputs)
    return AdditiveModel(intercept, pair, query, missing)


def _smooths(table: SmoothTable, names: tuple[str, ...], outputs: int) -> Smooths:
    features = np.array([names.index(name) for name in table.features], dtype=np.int64)
    count = len(features)
    if not count:
        return Smooths(features, np.zeros((0, 2)), np.zeros((0, 1, 4, outputs)))
    knots = np.array(table.knots, dtype=np.float64)
    coefficients = np.array(table.coefficients, dtype=np.float64)
    if knots.ndim != 2 or len(knots) != count or knots.shape[1] < 2 or (np.diff(knots, axis=1) < 0).any():
        raise ValueError("knots must be two or more a feature, and rise")
    if coefficients.shape != (count, knots.shape[1] - 1, 4, outputs):
        raise ValueError("coefficients")
    return Smooths(features, knots, coefficients)


def second_round_of(model: SecondRoundModel | None, channels: tuple[str, ...]) -> SecondRound | None:
    """Return the second round, None where none was fitted."""
    if model is None:
        return None
    effects = len(channels) + 2
    covariance = np.array(model.covariance)
    tables = [np.array(rows) for rows in (model.centre, model.spread, model.weights)]
    if covariance.shape != (effects, effects) or len(model.noise) != len(model.bins) + 1:
        raise ValueError("covariance, bins or noise of the second round")
    if any(table.shape != (len(CUTOFFS), len(FEATURES)) for table in tables) or len(model.intercept) != len(CUTOFFS):
        raise ValueError("weights of the second round")
    if not (tables[1] > 0).all() or not min(model.noise) > 0 or list(model.bins) != sorted(model.bins):
        raise ValueError("spread, noise or bins of the second round")
    if not np.allclose(covariance, covariance.T) or np.linalg.eigvalsh(covariance[1:, 1:]).min() <= 0:
        raise ValueError("covariance of the second round is not symmetric and positive")
    centre, spread, weights = tables
    return SecondRound(
        scale=model.scale,
        covariance=covariance,
        bins=np.array(model.bins),
        noise=np.array(model.noise),
        centre=centre,
        spread=spread,
        weights=weights,
        intercept=np.array(model.intercept),
    )


def score_map_of(model: PlattMap | IsotonicMap) -> ScoreMap:
    """Return the map of a stage's score."""
    match model:
        case PlattMap():
            return Platt(model.slope, model.intercept)
        case IsotonicMap():
            return Isotonic(np.array(model.scores), np.array(model.probabilities))
        case _:
            assert_never(model)


def final_order_of(model: FinalOrder | None, channels: tuple[str, ...]) -> BlockOrder | None:
    """Return the fitted order of the scored block, None where none was fitted."""
    if model is None:
        return None
    names = pair_feature_names(channels)
    weights = np.zeros(len(names))
    for name, weight in model.features.items():
        weights[names.index(name)] = weight
    return BlockOrder(model.large, weights)
