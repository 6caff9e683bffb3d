"""Numbers that no test can be made on are refused by name."""

from __future__ import annotations

import math

import pytest

from cascade.errors import ConfigError
from cascade.statistics.sample import between, finite, not_negative


def test_the_first_value_that_is_no_number_is_named() -> None:
    """What is wrong, how often, and where first."""
    with pytest.raises(ConfigError, match="losses: 2 of 4 are not finite, the first is number 1"):
        finite("losses", [0.0, math.nan, 1.0, math.inf])


@pytest.mark.parametrize("values", [[], [[1.0, 2.0]]])
def test_one_number_a_query_is_wanted(values: list[float]) -> None:
    """None at all and a table of them are no sample."""
    with pytest.raises(ConfigError, match="losses: one number a query is wanted"):
        finite("losses", values)


def test_numbers_within_their_bounds_pass_as_they_are() -> None:
    """Nothing is clipped or moved."""
    assert finite("losses", [1, -2]).tolist() == [1.0, -2.0]
    assert between("delta", 0.1, 0.0, 1.0) == 0.1
    assert not_negative("sigma", 0.0) == 0.0


@pytest.mark.parametrize("value", [0.0, 1.0, math.nan])
def test_an_end_is_not_between(value: float) -> None:
    """Neither end, nor NaN, lies strictly between."""
    with pytest.raises(ConfigError, match=r"delta: .* is not between 0 and 1"):
        between("delta", value, 0.0, 1.0)


@pytest.mark.parametrize("value", [-0.1, math.inf, math.nan])
def test_a_spread_is_finite_and_not_below_zero(value: float) -> None:
    """Neither negative nor infinite nor NaN."""
    with pytest.raises(ConfigError, match=r"sigma: .* is not a number of at least 0"):
        not_negative("sigma", value)
