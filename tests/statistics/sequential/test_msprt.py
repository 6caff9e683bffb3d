"""The mixture sequential probability ratio test of a guardrail."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import integrate, stats

from cascade.errors import ConfigError
from cascade.statistics.sequential import Msprt, msprt_p_values

_STREAMS, _LENGTH, _ALPHA = 2000, 500, 0.1
_BOUND = _ALPHA + 3 * np.sqrt(_ALPHA * (1 - _ALPHA) / _STREAMS)


def test_looking_after_every_value_it_is_wrong_no_more_often_than_alpha_and_a_z_test_is() -> None:
    """Of 2,000 streams whose mean is theta; the z-test looked at as often is wrong on half of them."""
    values = np.random.default_rng(31).normal(0.3, 1.0, (_STREAMS, _LENGTH))
    assert (msprt_p_values(values, 1.0, 0.2, theta=0.3)[:, -1] <= _ALPHA).mean() <= _BOUND
    z = np.abs((values - 0.3).cumsum(axis=1)) / np.sqrt(np.arange(1, _LENGTH + 1))
    assert (z[:, 9:] > stats.norm.ppf(1 - _ALPHA / 2)).any(axis=1).mean() > 0.5


@pytest.mark.parametrize("share", [0.02, 0.5])
def test_a_yes_or_no_is_safe_with_a_variance_of_a_quarter(share: float) -> None:
    """Whether a request was too slow, of any rate: the widest variance keeps the level."""
    values = (np.random.default_rng(32).random((_STREAMS, _LENGTH)) < share).astype(np.float64)
    assert (msprt_p_values(values, 0.25, 0.05, theta=share)[:, -1] <= _ALPHA).mean() <= _BOUND


def test_a_shift_is_found_to_either_side() -> None:
    """By a fifth of the spread, within 500 values, nearly always."""
    values = np.random.default_rng(33).normal(size=(400, _LENGTH))
    for shift in (-0.2, 0.2):
        assert (msprt_p_values(values + shift, 1.0, 0.2)[:, -1] <= _ALPHA).mean() > 0.95


def test_the_ratio_is_the_integral_that_it_stands_for() -> None:
    """One over Lambda, the likelihood ratio averaged over N(theta, tau^2), integrated numerically."""
    values = np.array([0.9, 1.4, 0.2, 1.1])

    def ratio(mean: float) -> float:
        log = stats.norm.logpdf(values, mean, 0.7).sum() - stats.norm.logpdf(values, 0.1, 0.7).sum()
        return float(np.exp(log) * stats.norm.pdf(mean, 0.1, 0.5))

    expected = integrate.quad(ratio, -5, 5)[0]
    assert expected > 1
    assert msprt_p_values(values, 0.49, 0.5, theta=0.1)[-1] == pytest.approx(1 / expected, rel=1e-6)


def test_one_value_at_a_time_gives_the_same_p_and_it_never_rises() -> None:
    """States and streams are two forms of one test."""
    values = np.random.default_rng(34).normal(0.1, 1.0, 300)
    state, found = Msprt(0.49, 0.3, theta=0.05), []
    for value in values:
        state = state.update(float(value))
        found.append(state.p)
    assert found == pytest.approx(msprt_p_values(values, 0.49, 0.3, theta=0.05).tolist(), rel=1e-9)
    assert (np.diff(found) <= 0).all()
    assert state.count == 300


def test_a_huge_value_does_not_overflow() -> None:
    """It is evidence, as far as numbers go."""
    assert Msprt(1.0, 1.0).update(1e200).p == 0.0


def test_what_cannot_be_tested_is_refused_by_name() -> None:
    """No variance, no size of deviation, no numbers."""
    with pytest.raises(ConfigError, match="variance: 0 is not a positive number"):
        Msprt(0.0, 1.0)
    with pytest.raises(ConfigError, match="tau: inf is not a positive number"):
        Msprt(1.0, np.inf)
    with pytest.raises(ConfigError, match="theta: 1 of 1 are not finite"):
        Msprt(1.0, 1.0, theta=np.nan)
    with pytest.raises(ConfigError, match="values: 1 of 1 are not finite"):
        Msprt(1.0, 1.0).update(np.nan)
    with pytest.raises(ConfigError, match="values: 1 of 2 are not finite"):
        msprt_p_values([1.0, np.inf], 1.0, 1.0)
