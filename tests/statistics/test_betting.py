"""Betting bounds: what they are on losses known by hand, and that they hold whatever losses are distributed like."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cascade.errors import ConfigError
from cascade.statistics.betting import (
    UNINFORMED,
    Bets,
    Prior,
    betting_p_value,
    betting_upper_bound,
    expected_growth,
)

_DELTA = 0.1
_STREAMS = 2000
_LIMIT = _DELTA + 3.0 * math.sqrt(_DELTA * (1.0 - _DELTA) / _STREAMS)


def _lost_rarely(random: np.random.Generator) -> np.ndarray:
    """Lose a whole unit by one query in a hundred, and nothing by the others: the mean is .01."""
    return (random.random((_STREAMS, 500)) < 0.01).astype(np.float64)


def _mostly_nothing(random: np.random.Generator) -> np.ndarray:
    """Lose nothing on four of five; on the others about .05, symmetrically about it: the mean is .01."""
    lost = random.random((_STREAMS, 500)) < 0.2
    return np.where(lost, np.clip(0.05 + 0.3 * random.standard_normal((_STREAMS, 500)), -0.9, 1.0), 0.0)


def _bounded_far(random: np.random.Generator) -> np.ndarray:
    """Gain as much as is lost, but for the mean of .01: the widest spread that there is."""
    return np.where(random.random((_STREAMS, 500)) < 0.505, 1.0, -1.0)


def test_one_loss_by_hand() -> None:
    """With the prior variance of 1, n = 1: lambda = sqrt(2 ln 10) = 2.146, cut to .9/.99; p = 1/(1 + .909 x .51)."""
    p = betting_p_value([-0.5], 0.01, 0.1)
    assert float(p) == pytest.approx(1.0 / (1.0 + 0.9 / 0.99 * 0.51))
    assert float(betting_p_value([-0.5], 0.01, 0.1, Bets.STAR)) == pytest.approx(1.0 / (1.0 + 0.51))


def test_losses_of_nothing_by_hand() -> None:
    """The t-th bet is sqrt(2 ln 10 / (200 v)) with v = 1/t, as one prior loss of variance 1 is all that varied."""
    p = betting_p_value(np.zeros(200), 0.01, 0.1)
    wealth, variance = 0.0, 1.0
    for seen in range(1, 201):
        bet = min(math.sqrt(2.0 * math.log(10.0) / (200.0 * variance)), 0.9 / 0.99)
        wealth += math.log1p(bet * 0.01)
        variance = 1.0 / (seen + 1.0)
    assert float(p) == pytest.approx(math.exp(-wealth))


def test_star_bets_what_is_still_needed_on_what_is_still_to_come() -> None:
    """After a gain of .2 with n = 2: sqrt(2 (ln 10 - ln K) / v) with v of prior and gain, cut to .99/.99."""
    first = min(math.sqrt(2.0 * math.log(10.0) / 2.0), 1.0)
    wealth = math.log1p(first * 0.21)
    variance = (1.0 + (0.2 / 2.0) ** 2) / 2.0
    second = min(math.sqrt(2.0 * (math.log(10.0) - wealth) / variance), 1.0)
    wealth += math.log1p(second * 0.21)
    assert float(betting_p_value([-0.2, -0.2], 0.01, 0.1, Bets.STAR)) == pytest.approx(math.exp(-wealth))


def test_without_a_loss_nothing_is_known() -> None:
    """P is 1, and the bound the greatest loss there is."""
    assert float(betting_p_value(np.zeros(0), 0.01, 0.1)) == 1.0
    assert betting_upper_bound(np.zeros(0), 0.01, 0.1) == pytest.approx(1.0)


@pytest.mark.parametrize("bets", list(Bets))
@pytest.mark.parametrize("prior", [UNINFORMED, Prior(0.2, 0.001, 30.0)])
@pytest.mark.parametrize("drawn", [_lost_rarely, _mostly_nothing, _bounded_far])
def test_a_mean_of_epsilon_is_refuted_as_rarely_as_promised(
    bets: Bets, prior: Prior, drawn: Callable[[np.random.Generator], np.ndarray]
) -> None:
    """Of 2,000 streams at most delta and three standard errors, whatever the prior believes."""
    losses = drawn(np.random.default_rng(7))
    refuted = betting_p_value(losses, 0.01, _DELTA, bets, prior) <= _DELTA
    assert refuted.mean() <= _LIMIT


def test_the_mean_alone_refutes_half_the_time() -> None:
    """The streams above have teeth: what loses less than epsilon on them is half of the time no better."""
    losses = _mostly_nothing(np.random.default_rng(7))
    assert (losses.mean(axis=1) < 0.01).mean() > 0.4


def test_star_shows_more_than_wsr_with_as_many_losses() -> None:
    """At a mean of nothing and the spread of real policies."""
    random = np.random.default_rng(3)
    losses = np.where(random.random((1000, 600)) < 0.3, 0.15 * random.standard_normal((1000, 600)), 0.0).clip(-1, 1)
    power = {bets: (betting_p_value(losses, 0.01, _DELTA, bets) <= _DELTA).mean() for bets in Bets}
    assert power[Bets.STAR] > power[Bets.WSR] + 0.02
    assert power[Bets.WSR] > 0.5


@pytest.mark.parametrize("bets", list(Bets))
@given(
    losses=st.lists(st.floats(-1.0, 1.0), min_size=1, max_size=40),
    epsilon=st.floats(0.001, 0.6),
    delta=st.floats(0.01, 0.5),
)
def test_the_bound_is_below_epsilon_exactly_where_p_is_below_delta(
    bets: Bets, losses: list[float], epsilon: float, delta: float
) -> None:
    """The two say the same."""
    p = float(betting_p_value(losses, epsilon, delta, bets))
    bound = betting_upper_bound(losses, epsilon, delta, bets)
    assert -1.0 < bound <= 1.0
    if abs(p - delta) > 1e-9:
        assert (bound <= epsilon) == (p <= delta)


def test_the_bound_covers_the_mean() -> None:
    """It is below the mean of .01 for at most a delta of the streams."""
    losses = _mostly_nothing(np.random.default_rng(11))[:300]
    bounds = np.array([betting_upper_bound(stream, 0.05, _DELTA) for stream in losses])
    assert (bounds < 0.01).mean() <= _DELTA + 3.0 * math.sqrt(_DELTA * (1.0 - _DELTA) / 300)
    assert float(np.median(bounds)) < 0.05


def test_many_streams_give_what_each_gives() -> None:
    """Along the last axis."""
    losses = np.random.default_rng(5).uniform(-0.2, 0.2, (3, 4, 50))
    together = betting_p_value(losses, 0.05, 0.1, Bets.STAR)
    assert together.shape == (3, 4)
    assert float(together[2, 1]) == pytest.approx(float(betting_p_value(losses[2, 1], 0.05, 0.1, Bets.STAR)))


@pytest.mark.parametrize(
    ("losses", "epsilon", "delta"),
    [([1.5], 0.01, 0.1), ([-1.1], 0.01, 0.1), ([math.nan], 0.01, 0.1), ([0.0], 1.0, 0.1), ([0.0], 0.01, 0.0)],
)
def test_what_no_bet_can_be_made_on_is_refused(losses: list[float], epsilon: float, delta: float) -> None:
    """Losses beyond their range, and bounds that are none."""
    with pytest.raises(ConfigError):
        betting_p_value(losses, epsilon, delta)


def test_rounding_beyond_the_range_is_no_fault() -> None:
    """A difference of two nDCG may be one part in 10^16 too large."""
    assert float(betting_p_value([1.0 + 1e-12], 0.01, 0.1)) == 1.0


def test_growth_is_that_of_the_best_constant_bet() -> None:
    """Losses of nothing: ln(1 + .99/.99 x .01); losses of a mean above epsilon: none; spread costs."""
    assert float(expected_growth(np.zeros(5), 0.01)) == pytest.approx(math.log1p(0.01))
    assert float(expected_growth(np.full(5, 0.02), 0.01)) == 0.0
    narrow, wide = expected_growth([[0.1, -0.1] * 10, [0.3, -0.3] * 10], 0.01)
    assert 0.0 < wide < narrow
