"""Two wagers on one stream of differences."""

from __future__ import annotations

import math

import numpy as np
import pytest

from cascade.errors import ConfigError
from cascade.rollout.guardrails.wager import Wager, least_to_pass
from cascade.statistics.sequential import NonInferiority


@pytest.mark.parametrize("limit", [-0.2, 0.0, 0.01, 0.3])
def test_both_wagers_are_those_of_non_inferiority(limit: float) -> None:
    """A pass is its wager; harm is its wager on what is negated: after each difference, to the last digits."""
    rng = np.random.default_rng(3)
    mine, harm, passing = Wager(limit, 0.002, 0.05), NonInferiority(-limit, 0.002), NonInferiority(limit, 0.05)
    for difference in rng.choice([-1.0, -0.1, 0.0, 0.0, 0.05, 1.0], 500):
        mine.add(float(difference))
        harm, passing = harm.update(-float(difference)), passing.update(float(difference))
        assert mine.p_harm == pytest.approx(harm.p)
        assert mine.p_pass == pytest.approx(passing.p)
        assert (mine.shows_harm, mine.shows_pass) == (harm.shown, passing.shown)
    assert mine.count == 500
    assert mine.mean is not None


def test_nothing_is_shown_by_nothing() -> None:
    """Without differences neither is shown, and there is no mean."""
    wager = Wager(0.01, 0.01, 0.05)
    assert (wager.shows_harm, wager.shows_pass, wager.mean, wager.p_harm, wager.p_pass) == (False, False, None, 1, 1)


def test_what_is_once_shown_stays_shown() -> None:
    """Looking later does not take back what the wager won."""
    wager = Wager(0.01, 0.01, 0.05)
    for _ in range(20):
        wager.add(1.0)
    assert wager.shows_harm
    for _ in range(500):
        wager.add(-0.5)
    assert wager.shows_harm
    assert wager.mean == pytest.approx(-230 / 520)


@pytest.mark.parametrize("difference", [1.5, -1.0001, math.nan, math.inf])
def test_a_difference_that_is_none_is_refused(difference: float) -> None:
    """It would spoil the wealth for good; nothing was taken of it."""
    wager = Wager(0.01, 0.01, 0.05)
    with pytest.raises(ConfigError, match="difference"):
        wager.add(difference)
    assert wager.count == 0


def test_a_state_goes_on_as_if_nothing_had_been() -> None:
    """All its numbers are plain, and are all that it is."""
    whole, first = Wager(0.02, 0.01, 0.05), Wager(0.02, 0.01, 0.05)
    for difference in (0.5, -0.25, 0.0):
        whole.add(difference)
        first.add(difference)
    second = Wager(0.02, 0.01, 0.05)
    second.restore(first.state())
    whole.add(0.125)
    second.add(0.125)
    assert second.state() == whole.state()


@pytest.mark.parametrize(("limit", "least"), [(0.005, 664), (0.01, 332), (0.02, 165), (0.1, 32)])
def test_the_least_that_passes_is_told(limit: float, least: int) -> None:
    """So many differences of 0 pass at 0.05, and one fewer does not."""
    assert least_to_pass(limit, 0.05) == least
    wager = Wager(limit, 0.01, 0.05)
    for _ in range(least - 1):
        wager.add(0.0)
    assert not wager.shows_pass
    wager.add(0.0)
    assert wager.shows_pass


def test_a_limit_of_zero_never_passes_on_like_answers() -> None:
    """Only one that is better passes it."""
    assert least_to_pass(0.0, 0.05) is None
