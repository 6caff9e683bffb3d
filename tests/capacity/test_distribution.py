"""How a count is distributed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cascade.capacity.distribution import Distribution


def test_weights_become_shares_in_ascending_order() -> None:
    """A value of no weight is not there."""
    found = Distribution.weighted([(200.0, 1.0), (50.0, 3.0), (7.0, 0.0)])
    assert found == Distribution((50.0, 200.0), (0.75, 0.25))
    assert (found.mean, found.share_above(50)) == (87.5, 0.25)


def test_the_mean_of_a_function_is_not_the_function_of_the_mean() -> None:
    """A depth of 100 scores 62.5 of these candidates, not all 87.5."""
    found = Distribution.weighted({50: 3, 200: 1}.items())
    assert found.mean_of(lambda count: min(count, 100)) == 0.75 * 50 + 0.25 * 100


def test_quantiles_are_straight_lines_of_whole_counts() -> None:
    """Half lie between 10 and 50, half between 50 and 200, and the mean is that of the lines."""
    found = Distribution.from_quantiles([(0.0, 10.0), (0.5, 50.0), (1.0, 200.0)])
    assert found.mean == pytest.approx(0.5 * 30 + 0.5 * 125, rel=0.001)
    assert found.share_above(50) == pytest.approx(0.5, abs=0.01)
    assert all(value == int(value) for value in found.values)
    assert (found.values[0], found.values[-1]) == (10.0, 199.0)


def test_equal_quantiles_are_one_value() -> None:
    """What never varies has one value with all of the weight."""
    assert Distribution.from_quantiles([(0.0, 7.0), (1.0, 7.0)]).values == (7.0,)


@given(st.dictionaries(st.integers(1, 1000), st.floats(0.01, 100), min_size=1), st.floats(1, 1000))
def test_shares_sum_to_one_and_a_cut_never_raises_the_mean(weights: dict[float, float], most: float) -> None:
    """Whatever the weights."""
    found = Distribution.weighted(weights.items())
    assert sum(found.shares) == pytest.approx(1.0)
    assert found.mean_of(lambda value: min(value, most)) <= min(found.mean, most) * (1 + 1e-12)
