"""Estimates from logs of another policy: worked by hand, and on a simulated bandit of which the truth is known."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray

from cascade.statistics.off_policy import clipped, doubly_robust, effective_sample_size, ips, mean_of, snips

FloatArray = NDArray[np.float64]

_SEEDS = 500
_RECORDS = 400
_ODDS = np.array([[0.7, 0.2, 0.1], [0.1, 0.8, 0.1], [0.25, 0.25, 0.5], [0.05, 0.15, 0.8], [0.4, 0.3, 0.3]])
"""p(a|x) of what logged, by context and action."""
_WORTH = np.array([[0.2, 0.6, 0.9], [0.5, 0.4, 0.1], [0.3, 0.8, 0.7], [0.9, 0.2, 0.3], [0.1, 0.5, 0.6]])
"""The mean reward of each action in each context."""
_TARGET = np.array([1, 0, 2, 0, 1])
"""The action of the policy that is asked about, rarely the one that was logged most."""
_TRUTH = float(_WORTH[np.arange(5), _TARGET].mean())


@dataclass(frozen=True)
class _Logs:
    """Logs of many seeds, (seeds, records) each."""

    context: NDArray[np.int64]
    action: NDArray[np.int64]
    rewards: FloatArray
    weights: FloatArray

    def predicted(self, model: FloatArray) -> FloatArray:
        """Return what a model (5, 3) predicts of the target's action."""
        return np.asarray(model[self.context, _TARGET[self.context]])


def _logs(records: int = _RECORDS, seeds: int = _SEEDS) -> _Logs:
    random = np.random.default_rng(7)
    context = random.integers(5, size=(seeds, records))
    action = (random.random((seeds, records, 1)) > _ODDS[context].cumsum(axis=-1)).sum(axis=-1).clip(max=2)
    rewards = (random.random((seeds, records)) < _WORTH[context, action]).astype(np.float64)
    return _Logs(context, action, rewards, (action == _TARGET[context]) / _ODDS[context, action])


_LOGS = _logs()


def _standard_errors_away(estimates: FloatArray) -> float:
    return float(abs(estimates.mean() - _TRUTH) / (estimates.std(ddof=1) / np.sqrt(estimates.size)))


@pytest.mark.parametrize("model", [_WORTH, 1.0 - _WORTH, np.full((5, 3), 100.0)], ids=["right", "wrong", "absurd"])
def test_doubly_robust_estimates_are_unbiased_whatever_is_predicted(model: FloatArray) -> None:
    """Over 500 seeds their mean is the truth within three standard errors."""
    estimates = doubly_robust(_LOGS.rewards, _LOGS.weights, _LOGS.predicted(model))
    assert _standard_errors_away(estimates) < 3.0


def test_ips_is_unbiased() -> None:
    """Over 500 seeds its mean is the truth within three standard errors."""
    assert _standard_errors_away(ips(_LOGS.rewards, _LOGS.weights)) < 3.0


def test_what_is_not_weighted_fails_the_same_test() -> None:
    """The mean reward where the target does what was logged is of other contexts than the target's."""
    covered = (_LOGS.weights > 0.0).astype(np.float64)
    assert _standard_errors_away(snips(_LOGS.rewards, covered)) > 6.0


def test_a_prediction_that_knows_what_was_done_fails_the_same_test() -> None:
    """So a reward model may read nothing that depends on the action that was logged."""
    knowing = np.where(_LOGS.weights > 0.0, 0.9, 0.1)
    assert _standard_errors_away(doubly_robust(_LOGS.rewards, _LOGS.weights, knowing)) > 6.0


def test_snips_is_consistent() -> None:
    """With 16 times the records its error is a quarter, and its bias nought to the third digit."""
    few, many = (snips(logs.rewards, logs.weights) for logs in (_LOGS, _logs(16 * _RECORDS, 200)))
    error_few, error_many = (float(np.sqrt(np.mean((each - _TRUTH) ** 2))) for each in (few, many))
    assert error_many == pytest.approx(error_few / 4, rel=0.25)
    assert many.mean() == pytest.approx(_TRUTH, abs=2e-3)


def test_a_right_model_makes_estimates_surer() -> None:
    """That is what the model is for."""
    spread = {
        "ips": ips(_LOGS.rewards, _LOGS.weights).std(),
        "dr": doubly_robust(_LOGS.rewards, _LOGS.weights, _LOGS.predicted(_WORTH)).std(),
    }
    assert spread["dr"] < 0.8 * spread["ips"]


def test_clipping_takes_from_ips_what_it_says() -> None:
    """With rewards of one the estimate falls short of one by the clipped mass, times the mean weight."""
    weights = _LOGS.weights[0]
    kept, mass = clipped(weights, 5.0)
    assert mass > 0.05
    assert float(ips(np.ones_like(kept), kept)) == pytest.approx((1.0 - mass) * weights.mean())


def test_worked_by_hand() -> None:
    """Four records, two of which the target does alike."""
    rewards, weights = np.array([1.0, 0.0, 5.0, 3.0]), np.array([2.0, 0.0, 0.0, 4.0])
    predicted = np.array([0.5, 1.0, 2.0, 2.5])
    assert float(ips(rewards, weights)) == (2 + 12) / 4
    assert float(snips(rewards, weights)) == pytest.approx(14 / 6)
    assert float(doubly_robust(rewards, weights, predicted)) == (6.0 + 2 * 0.5 + 4 * 0.5) / 4
    assert float(effective_sample_size(weights)) == 36 / 20
    assert float(mean_of(rewards)) == 9 / 4
    kept, mass = clipped(weights, 3.0)
    assert kept.tolist() == [2.0, 0.0, 0.0, 3.0]
    assert mass == pytest.approx(1 / 6)


def test_equal_weights_are_worth_their_number() -> None:
    """The effective sample size is n for equal weights and 1 for a single one."""
    assert float(effective_sample_size(np.full(7, 3.0))) == pytest.approx(7.0)
    assert float(effective_sample_size(np.array([0.0, 9.0, 0.0]))) == 1.0


def test_without_any_weight_there_is_nothing_to_say() -> None:
    """Nought records are effective, no mass is clipped, and a ratio is not defined."""
    nothing = np.zeros(3)
    assert float(effective_sample_size(nothing)) == 0.0
    assert clipped(nothing, 20.0)[1] == 0.0
    assert np.isnan(float(snips(np.ones(3), nothing)))
    assert float(ips(np.ones(3), nothing)) == 0.0


def test_records_count_as_often_as_they_are_drawn() -> None:
    """A count of two is the record twice, for many draws at once."""
    rewards, weights, predicted = np.array([1.0, 2.0, 4.0]), np.array([0.0, 2.0, 1.0]), np.array([0.5, 1.5, 2.5])
    counts = np.array([[1.0, 1.0, 1.0], [0.0, 2.0, 1.0]])
    twice = np.array([1, 1, 2])
    estimates = (
        (ips(rewards, weights, counts), ips(rewards, weights), ips(rewards[twice], weights[twice])),
        (snips(rewards, weights, counts), snips(rewards, weights), snips(rewards[twice], weights[twice])),
        (mean_of(rewards, counts), mean_of(rewards), mean_of(rewards[twice])),
        (
            doubly_robust(rewards, weights, predicted, counts),
            doubly_robust(rewards, weights, predicted),
            doubly_robust(rewards[twice], weights[twice], predicted[twice]),
        ),
    )
    for drawn, once, again in estimates:
        assert drawn.tolist() == pytest.approx([float(once), float(again)])
