"""Asymptotic confidence sequences cover at every count at once."""

from __future__ import annotations

import numpy as np
import pytest

from cascade.errors import ConfigError
from cascade.statistics.sequential import ConfidenceSequence, confidence_bounds, planned_rho

_STREAMS, _LENGTH, _ALPHA = 2000, 600, 0.1
_BOUND = _ALPHA + 3 * np.sqrt(_ALPHA * (1 - _ALPHA) / _STREAMS)
_RHO = planned_rho(300, _ALPHA)


@pytest.mark.parametrize(("share", "size"), [(0.02, 1.0), (0.3, 0.4), (0.3, -0.4)])
def test_the_mean_is_inside_at_every_count(share: float, size: float) -> None:
    """Losses that are rare and total or frequent and middling, and gains: 2,000 streams of 600 each."""
    values = (np.random.default_rng(41).random((_STREAMS, _LENGTH)) < share) * size
    low, high = confidence_bounds(values, _ALPHA, _RHO)
    assert ((low > share * size) | (high < share * size)).any(axis=1).mean() <= _BOUND


def test_without_a_prior_rare_losses_are_missed_and_so_by_intervals_for_one_look() -> None:
    """The check has teeth: a spread of zero closes the interval too soon, and 1.645 standard errors are for one look."""
    generator = np.random.default_rng(42)
    rare = (generator.random((_STREAMS, _LENGTH)) < 0.02).astype(np.float64)
    low, high = confidence_bounds(rare, _ALPHA, _RHO, prior=0.0)
    assert ((low > 0.02) | (high < 0.02))[:, 29:].any(axis=1).mean() > 0.3
    values = generator.normal(size=(_STREAMS, _LENGTH))
    z = np.abs(values.cumsum(axis=1)) / np.sqrt(np.arange(1, _LENGTH + 1))
    assert (z[:, 29:] > 1.645).any(axis=1).mean() > 0.3


def test_the_interval_by_hand() -> None:
    """Two values, rho 1: sqrt(2 x 3 / 4 x ln(sqrt(3) / .1)) times the spread with its prior."""
    found = ConfidenceSequence(0.1, 1.0, prior=0.5).update(0.2).update(0.6).interval
    half = np.sqrt((0.5 + 0.08) / 3) * np.sqrt(2 * 3 / 4 * np.log(np.sqrt(3) / 0.1))
    assert found == pytest.approx((0.4 - half, 0.4 + half))


def test_one_value_at_a_time_gives_the_same_ends() -> None:
    """States and streams are two forms of one sequence."""
    values = np.random.default_rng(43).normal(0.1, 0.3, 200)
    state, found = ConfidenceSequence(0.1, _RHO), []
    for value in values:
        state = state.update(float(value))
        found.append(state.interval or (np.nan, np.nan))
    low, high = confidence_bounds(values, 0.1, _RHO)
    assert [ends[0] for ends in found] == pytest.approx(low.tolist(), abs=1e-9)
    assert [ends[1] for ends in found] == pytest.approx(high.tolist(), abs=1e-9)


def test_before_the_first_value_nothing_is_said() -> None:
    """There is no interval yet, and the first is as wide as losses are."""
    start = ConfidenceSequence(0.1, _RHO)
    assert start.interval is None
    first = start.update(0.0).interval
    assert first is not None
    assert first[1] > 1.0


def test_the_planned_rho_is_about_the_best_for_its_count() -> None:
    """Half or twice of it gives a wider interval at the planned count."""
    values = np.random.default_rng(44).normal(size=1000)
    rho = planned_rho(1000, 0.1)
    widths = []
    for factor in (0.5, 1.0, 2.0):
        low, high = confidence_bounds(values, 0.1, factor * rho)
        widths.append(high[-1] - low[-1])
    assert widths[1] == min(widths)


def test_what_makes_no_sense_is_refused_by_name() -> None:
    """Levels, rho, prior, counts and values."""
    with pytest.raises(ConfigError, match="alpha: 1 is not between 0 and 1"):
        ConfidenceSequence(1.0, 1.0)
    with pytest.raises(ConfigError, match="rho: 0 is not between 0 and inf"):
        ConfidenceSequence(0.1, 0.0)
    with pytest.raises(ConfigError, match="prior: -1 is not a number of at least 0"):
        ConfidenceSequence(0.1, 1.0, prior=-1.0)
    with pytest.raises(ConfigError, match="count: 0 is not at least 1"):
        planned_rho(0, 0.1)
    with pytest.raises(ConfigError, match="values: 1 of 1 are not finite"):
        ConfidenceSequence(0.1, 1.0).update(np.inf)
    with pytest.raises(ConfigError, match="values: 1 of 2 are not finite"):
        confidence_bounds([0.0, np.nan], 0.1, 1.0)
