"""Estimating again from the large scores seen, against conditioning a Gaussian by brute force."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cascade.calibration.features import Described, describe
from cascade.calibration.gain import CUTOFFS
from cascade.calibration.second_round import FEATURES, SecondRound

FloatArray = npt.NDArray[np.float64]

_VAGUE = 1e4
"""Variance that stands for a flat prior of the level in the brute force: it leaves 1e-4 at most, and no cancellation."""
_NAN = np.nan


def _second_round(effects: int, seed: int = 0, scale: float = 2.5) -> SecondRound:
    random = np.random.default_rng(seed)
    root = 0.5 * random.normal(size=(effects, effects))
    shape = (len(CUTOFFS), len(FEATURES))
    return SecondRound(
        scale=scale,
        covariance=root @ root.T + 0.1 * np.eye(effects),
        bins=np.array([-0.5, 0.5]),
        noise=np.array([0.2, 0.4, 0.8]),
        centre=np.zeros(shape),
        spread=np.ones(shape),
        weights=0.1 * random.normal(size=shape),
        intercept=random.normal(size=len(CUTOFFS)),
    )


def _query(count: int, seed: int = 0) -> tuple[Described, FloatArray, FloatArray, FloatArray, FloatArray]:
    """Return the description, logits, mu, value and large scores of one query."""
    random = np.random.default_rng(seed)
    described = describe(random.normal(size=count), {"bm25": random.normal(size=count)})
    logits = np.sort(random.normal(size=(count, 4)), axis=1)
    return described, logits, random.normal(size=count), random.random(count), random.normal(size=count) * 4.0


def _conditioned(
    model: SecondRound, effects: FloatArray, mu: FloatArray, seen: FloatArray, at: npt.NDArray[np.bool_]
) -> tuple[FloatArray, FloatArray]:
    """Return mean and sd of unseen large scores, standardised, from the joint Gaussian of all candidates."""
    prior = model.covariance.copy()
    prior[0, :] = prior[:, 0] = 0.0
    prior[0, 0] = _VAGUE
    noise = model.noise[np.digitize(mu, model.bins)]
    joint = effects @ prior @ effects.T + np.diag(noise)
    within, across = joint[np.ix_(at, at)], joint[np.ix_(~at, at)]
    gain = across @ np.linalg.inv(within)
    mean = mu[~at] + gain @ (seen / model.scale - mu[at])
    variance = np.diag(joint[np.ix_(~at, ~at)] - gain @ across.T)
    return mean, np.sqrt(variance)


def _column(features: FloatArray, name: str, cutoff: int) -> FloatArray:
    return np.asarray(features[:, CUTOFFS.index(cutoff), FEATURES.index(name)])


@pytest.mark.parametrize("scored", [1, 2, 5, 12, 19])
def test_the_reach_is_that_of_the_conditional_gaussian(scored: int) -> None:
    """How far a candidate is expected from the best c seen, in deviations: as the joint covariance has it."""
    described, logits, mu, worth, large = _query(20)
    at = np.arange(20) < scored
    model = _second_round(3)
    features = model.features(described, logits, mu, worth, np.where(at, large, _NAN))
    mean, sd = _conditioned(model, described.effects, mu, large[at], at)
    best = np.sort(large[at] / model.scale)[::-1]
    for cutoff in CUTOFFS:
        bar = best[cutoff - 1] if scored >= cutoff else best[-1] - 1.0
        reach = np.clip((mean - bar) / sd, -8.0, 4.0)
        assert _column(features, "reach", cutoff)[~at] == pytest.approx(reach, abs=2e-4)
        assert _column(features, "reach_squared", cutoff)[~at] == pytest.approx(reach**2, abs=2e-3)
        assert _column(features, "full", cutoff)[0] == min(scored, cutoff) / cutoff


@settings(deadline=None)
@given(st.integers(-1000, 1000), st.integers(1, 11), st.integers(0, 1000))
def test_a_constant_added_to_the_large_scores_leaves_no_trace(constant: int, scored: int, seed: int) -> None:
    """The level is free: to the last bit, where the shifted scores are exact."""
    described, logits, mu, worth, large = _query(12, seed)
    large = np.where(np.arange(12) < scored, np.round(large * 8) / 8, _NAN)
    model = _second_round(3, seed)
    one = model.features(described, logits, mu, worth, large)
    other = model.features(described, logits, mu, worth, large + constant)
    assert np.array_equal(one, other)


def test_the_other_features_are_what_their_names_say() -> None:
    """The logits of before, how many were scored, and how many of the least valuable third got in."""
    described, logits, mu, _, _ = _query(9)
    worth = np.arange(9.0, 0.0, -1.0)
    large = np.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, _NAN, _NAN, _NAN])
    features = _second_round(3).features(described, logits, mu, worth, large)
    for cutoff, hits in (
        (1, 0.5),
        (3, 1.0),
        (5, 1.0),
        (10, 1.0),
    ):  # the late two scored 5 and 6; the bars are 6, 4, 2, 0
        assert _column(features, "late_hits", cutoff).tolist() == [hits] * 9
        logit = logits[:, CUTOFFS.index(cutoff)]
        assert _column(features, "logit_p", cutoff).tolist() == logit.tolist()
        assert _column(features, "late_hits_times_logit_p", cutoff) == pytest.approx(hits * logit)
        reach = _column(features, "reach", cutoff)
        assert _column(features, "logit_p_times_reach", cutoff) == pytest.approx(reach * logit)
    assert _column(features, "logit_p_10", 1).tolist() == logits[:, -1].tolist()
    assert _column(features, "log_scored", 10).tolist() == [np.log(6.0)] * 9


def test_one_score_seen_has_a_late_third() -> None:
    """With one or two scored the late third is the last one; nothing is divided by zero."""
    described, logits, mu, worth, large = _query(5)
    features = _second_round(3).features(described, logits, mu, worth, np.where(np.arange(5) == 2, large, _NAN))
    assert _column(features, "late_hits", 1).tolist() == [1.0] * 5
    assert np.isfinite(features).all()


def test_logits_are_a_regression_by_cutoff() -> None:
    """(x - centre) / spread times the weights of its cutoff, and the intercept."""
    model = _second_round(3)
    features = np.random.default_rng(1).normal(size=(6, 4, len(FEATURES)))
    expected = [[features[i, c] @ model.weights[c] + model.intercept[c] for c in range(len(CUTOFFS))] for i in range(6)]
    assert model(features) == pytest.approx(np.array(expected))
