"""Predicted rewards for doubly robust estimates."""

from __future__ import annotations

import numpy as np
import pytest

from cascade.fit.reward import predicted_rewards

_RANDOM = np.random.default_rng(3)
_FEATURES = _RANDOM.normal(size=(600, 3))
_FEATURES[::7, 1] = np.nan
_REWARDS = 0.5 + 0.2 * _FEATURES[:, 0] + 0.05 * _RANDOM.normal(size=600)
_WEIGHTS = np.where(_RANDOM.random(600) < 0.5, 2.0, 0.0)
_QUERIES = np.arange(600)


def test_rewards_are_predicted_of_records_that_were_not_seen() -> None:
    """A reward that follows a feature is found, where the record was of another action too."""
    predicted = predicted_rewards(_FEATURES, _REWARDS, _WEIGHTS, _QUERIES, 0)
    assert np.corrcoef(predicted[_WEIGHTS == 0.0], _REWARDS[_WEIGHTS == 0.0])[0, 1] > 0.9


def test_no_record_has_a_part_in_its_own_prediction() -> None:
    """Another reward of a query's records changes others' predictions and none of that query's."""
    queries = _QUERIES // 2
    changed = _REWARDS.copy()
    changed[queries == 5] += 50.0
    weights = np.ones(600)
    before, after = (predicted_rewards(_FEATURES, each, weights, queries, 0) for each in (_REWARDS, changed))
    assert before[queries == 5].tolist() == after[queries == 5].tolist()
    assert (before != after).sum() > 300


def test_what_took_another_action_teaches_nothing() -> None:
    """Records of weight nought may have any reward."""
    changed = np.where(_WEIGHTS == 0.0, 1e6, _REWARDS)
    before, after = (predicted_rewards(_FEATURES, each, _WEIGHTS, _QUERIES, 0) for each in (_REWARDS, changed))
    assert before.tolist() == after.tolist()


def test_predictions_stay_within_the_rewards_seen() -> None:
    """A line through the rewards would leave their range for a far record."""
    features = _FEATURES.copy()
    features[0, 0] = 100.0
    predicted = predicted_rewards(features, _REWARDS, np.ones(600), _QUERIES, 0)
    assert predicted[0] == pytest.approx(max(_REWARDS), abs=0.2)


def test_few_records_are_predicted_by_their_mean_and_none_by_nought() -> None:
    """Fewer than fifty teach no line."""
    few = np.zeros(600)
    few[:20] = np.arange(1.0, 21.0)
    predicted = predicted_rewards(_FEATURES, np.arange(600.0), few, _QUERIES, 0)
    assert predicted.min() >= 0.0
    assert predicted.max() <= 19.0
    assert len(set(predicted.tolist())) <= 5
    assert predicted_rewards(_FEATURES[:3], np.ones(3), np.zeros(3), _QUERIES[:3], 0).tolist() == [0.0] * 3


def test_every_feature_may_be_missing() -> None:
    """A channel that no record learnt from has is of no use, and no fault."""
    features = np.column_stack([_FEATURES, np.full(600, np.nan)])
    predicted = predicted_rewards(features, _REWARDS, np.ones(600), _QUERIES, 0)
    assert np.corrcoef(predicted, _REWARDS)[0, 1] > 0.9
