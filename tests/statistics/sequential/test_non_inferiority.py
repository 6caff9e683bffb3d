"""The wager on a mean loss below epsilon may be looked at after every query."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict

import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats

from cascade.errors import ConfigError
from cascade.statistics.sequential import NonInferiority, log_wealth

_Array = npt.NDArray[np.float64]
_Law = Callable[[np.random.Generator], _Array]
_STREAMS, _LENGTH, _ALPHA, _EPSILON = 2000, 600, 0.1, 0.02
_BOUND = _ALPHA + 3 * np.sqrt(_ALPHA * (1 - _ALPHA) / _STREAMS)


def _rare(generator: np.random.Generator) -> _Array:
    """Return losses that are all or nothing: the worst law of mean epsilon."""
    return (generator.random((_STREAMS, _LENGTH)) < _EPSILON).astype(np.float64)


def _mostly_zero(generator: np.random.Generator) -> _Array:
    """Return losses as policies have them: mostly zero, gains and losses else, of mean epsilon."""
    shape = (_STREAMS, _LENGTH)
    sizes = generator.beta(2, 5, shape) * (generator.random(shape) < 0.2)
    return sizes * np.where(generator.random(shape) < 0.5 + 0.5 * _EPSILON / (0.2 * 2 / 7), 1.0, -1.0)


def _drifting(generator: np.random.Generator) -> _Array:
    """Return losses of mean epsilon at first and three times that after half of the queries."""
    means = np.where(np.arange(_LENGTH) < _LENGTH // 2, _EPSILON, 3 * _EPSILON)
    return np.clip(generator.normal(0.0, 0.1, (_STREAMS, _LENGTH)), -0.5, 0.5) + means


@pytest.mark.parametrize("law", [_rare, _mostly_zero, _drifting])
def test_looking_after_every_query_it_is_wrong_no_more_often_than_alpha(law: _Law) -> None:
    """Of 2,000 streams with a mean loss of epsilon at most alpha + 3 se are ever shown to lose less."""
    losses = law(np.random.default_rng(21))
    ever = (log_wealth(losses, _EPSILON, _ALPHA) >= -np.log(_ALPHA)).any(axis=1)
    assert ever.mean() <= _BOUND


@pytest.mark.parametrize("law", [_rare, _mostly_zero])
def test_a_t_test_looked_at_as_often_fails_that_check(law: _Law) -> None:
    """Even from the thirtieth query on, a t-test is wrong on a third of the same streams or more."""
    losses = law(np.random.default_rng(21))
    count = np.arange(1, _LENGTH + 1)
    mean = losses.cumsum(axis=1) / count
    spread = np.sqrt(np.maximum((losses**2).cumsum(axis=1) / count - mean**2, 0.0) * count / np.maximum(count - 1, 1))
    below = (mean - _EPSILON) * np.sqrt(count) < stats.t.ppf(_ALPHA, np.maximum(count - 1, 1)) * spread
    assert below[:, 29:].any(axis=1).mean() > 1 / 3


def test_a_policy_that_loses_nothing_is_shown_to() -> None:
    """Gains and losses that cancel, spread .15: 600 queries show less than .02 in three streams of four, 300 in half."""
    losses = _mostly_zero(np.random.default_rng(22)) - _EPSILON
    ever = (log_wealth(np.clip(losses, -1, 1), _EPSILON, _ALPHA) >= -np.log(_ALPHA)).cumsum(axis=1) > 0
    assert ever[:, -1].mean() > 0.75
    assert ever[:, 299].mean() > 0.5


def test_one_loss_at_a_time_gives_the_same_wealth() -> None:
    """States and streams are two forms of one wager."""
    losses = _mostly_zero(np.random.default_rng(23))[0]
    state, wealth = NonInferiority(_EPSILON, _ALPHA), []
    for loss in losses:
        state = state.update(float(loss))
        wealth.append(state.log_wealth)
    together = log_wealth(losses, _EPSILON, _ALPHA)
    assert wealth == pytest.approx(together.tolist(), abs=1e-9)
    assert state.log_peak == pytest.approx(max(0.0, together.max()), abs=1e-9)
    assert state.count == _LENGTH


def test_the_first_bets_by_hand() -> None:
    """The bet on the first loss is capped at .9/(1 - m), and the loss is where it pays 1 - .9 x .5."""
    state = NonInferiority(epsilon=0.0, alpha=0.1).update(0.5)
    assert state.log_wealth == pytest.approx(np.log1p(-1.8 * 0.25))
    assert (state.p, state.shown) == (1.0, False)
    assert state.squares == pytest.approx((0.75 - 1.25 / 2) ** 2)


def test_a_bet_below_its_cap_by_hand() -> None:
    """After many zeros the bet is sqrt(2 ln 10 / (v t ln(1 + t))), with the variance of what was seen before."""
    state = NonInferiority(epsilon=0.0, alpha=0.9)
    for _ in range(3):
        state = state.update(0.0)
    variance = 0.25 / 4
    bet = np.sqrt(2 * np.log(1 / 0.9) / (variance * 4 * np.log(5)))
    assert bet < 1.8
    assert state.update(-1.0).log_wealth - state.log_wealth == pytest.approx(np.log1p(bet / 2))


def test_what_is_shown_stays_shown() -> None:
    """Later losses lower the wealth, never the evidence."""
    state = NonInferiority(0.1, 0.1)
    for _ in range(100):
        state = state.update(-0.2)
    assert state.shown
    later = state.update(1.0)
    assert later.log_wealth < state.log_wealth
    assert (later.p, later.shown) == (state.p, True)
    assert later.p == pytest.approx(np.exp(-later.log_peak))


def test_harm_is_shown_by_the_wager_turned_around() -> None:
    """On -D with -epsilon: a mean loss of .2 is soon shown to be above .05."""
    state = NonInferiority(-0.05, 0.1)
    for _ in range(60):
        state = state.update(-0.2)
    assert state.shown


def test_a_state_can_be_stored_and_taken_up_again() -> None:
    """It is plain numbers, and nothing else is remembered."""
    state = NonInferiority(0.02, 0.1).update(0.3).update(-0.1)
    again = NonInferiority(**json.loads(json.dumps(asdict(state))))
    assert again == state
    assert again.update(0.2) == state.update(0.2)


@pytest.mark.parametrize("loss", [1.5, -1.01, np.nan, np.inf])
def test_what_is_no_loss_is_refused(loss: float) -> None:
    """One at a time and in a stream."""
    with pytest.raises(ConfigError, match=r"losses: one is not a number in \[-1, 1\]"):
        NonInferiority(0.02, 0.1).update(loss)
    with pytest.raises(ConfigError, match=r"losses: one is not a number in \[-1, 1\]"):
        log_wealth([0.0, loss], 0.02, 0.1)


def test_levels_are_checked() -> None:
    """No epsilon of 1, no alpha of 0."""
    with pytest.raises(ConfigError, match="epsilon: 1 is not between -1 and 1"):
        NonInferiority(1.0, 0.1)
    with pytest.raises(ConfigError, match="alpha: 0 is not between 0 and 1"):
        log_wealth([0.0], 0.1, 0.0)
