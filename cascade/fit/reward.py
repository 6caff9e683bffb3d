"""Predict the reward of a policy's own action, for doubly robust estimates."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

__all__ = ["predicted_rewards"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

_FOLDS: Final = 5
_LEAST_ROWS: Final = 50
_PENALTIES: Final = tuple(float(penalty) for penalty in np.logspace(-1, 5, 13))


def predicted_rewards(
    features: FloatArray, rewards: FloatArray, weights: FloatArray, queries: IntArray, seed: int
) -> FloatArray:
    """Return the reward (n,) predicted for each record, by a ridge regression on the other records.

    ``features`` (n, d) with NaN for what is missing tell nothing of what was done. Records of weight 0 took another
    action: they are predicted, and none is learnt from. No record of a query is predicted by a model that saw one
    of that query (``queries`` (n,), numbers from 0). With fewer than 50 records to learn from the prediction is
    their weighted mean, and nought without any.
    """
    order = np.random.default_rng(seed).permutation(int(queries.max(initial=-1)) + 1)
    fold = (order % _FOLDS)[queries]
    predicted = np.zeros(rewards.size)
    for number in range(_FOLDS):
        held_out = fold == number
        learnt = ~held_out & (weights > 0.0)
        predicted[held_out] = _predicted(features[learnt], rewards[learnt], weights[learnt], features[held_out])
    return predicted


def _predicted(features: FloatArray, rewards: FloatArray, weights: FloatArray, of: FloatArray) -> FloatArray:
    if not rewards.size or not len(of):
        return np.zeros(len(of))
    if rewards.size < _LEAST_ROWS:
        return np.full(len(of), np.average(rewards, weights=weights))
    from sklearn.impute import SimpleImputer
    from sklearn.linear_model import RidgeCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    model = make_pipeline(
        SimpleImputer(add_indicator=True, keep_empty_features=True), StandardScaler(), RidgeCV(_PENALTIES)
    )
    model.fit(features, rewards, ridgecv__sample_weight=weights)
    # A line may leave the range of what was seen; no reward does.
    return np.asarray(np.clip(model.predict(of), rewards.min(), rewards.max()))
