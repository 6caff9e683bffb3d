"""How far samples have moved."""

from __future__ import annotations

import math

import numpy as np
import pytest

from cascade.errors import ConfigError
from cascade.statistics.drift import ks_distance, ks_p_value, stability_index


def test_the_index_of_two_bins_is_the_sum_by_hand() -> None:
    """Of 2 below and 2 above the median, then 1 and 3, with half a value more in each bin."""
    before, after = [1.0, 2.0, 3.0, 4.0], [1.0, 3.0, 3.5, 9.0]
    e, a = np.array([2.5, 2.5]) / 5.0, np.array([1.5, 3.5]) / 5.0
    assert stability_index(before, after, bins=2) == pytest.approx(float(((a - e) * np.log(a / e)).sum()))


def test_the_index_of_a_sample_with_itself_is_zero_even_where_all_values_are_the_same() -> None:
    """Equal edges make fewer bins and no division by zero."""
    assert stability_index([3.0] * 50, [3.0] * 50) == 0.0
    assert stability_index([1.0, 2.0, 3.0], [1.0, 2.0, 3.0]) == 0.0


@pytest.mark.parametrize("moved_to", [0.2, 1.8])
def test_a_move_from_a_value_that_most_have_is_seen_both_ways(moved_to: float) -> None:
    """Scores that are saturated, all of them or nineteen in twenty, have no bin below them that others share."""
    assert stability_index([1.0] * 1000, [moved_to] * 1000) > 10.0
    mostly = [1.0] * 950 + [moved_to] * 50
    assert stability_index(mostly, [moved_to] * 1000) > 1.0
    assert stability_index(mostly, mostly[::-1]) == 0.0


def test_the_index_is_about_its_expectation_where_nothing_moved_and_large_where_it_did() -> None:
    """(bins - 1)(1/n + 1/m) over 200 seeds; a shift by 0.7 spreads is far above 0.25."""
    found = []
    for seed in range(200):
        rng = np.random.default_rng(seed)
        found.append(stability_index(rng.normal(size=1000), rng.normal(size=1000)))
    assert np.mean(found) == pytest.approx(0.018, rel=0.1)
    assert max(found) < 0.1
    rng = np.random.default_rng(1)
    assert stability_index(rng.normal(size=1000), rng.normal(0.7, 1.0, 1000)) > 0.35


def test_the_distance_is_the_largest_gap_by_hand() -> None:
    """Half of one sample lies below all of the other."""
    assert ks_distance([1.0, 2.0, 5.0, 6.0], [3.0, 4.0, 5.0, 6.0]) == 0.5
    assert ks_distance([1.0, 1.0], [1.0, 1.0]) == 0.0
    assert ks_distance([1.0], [2.0]) == 1.0


def test_the_p_value_is_a_bound() -> None:
    """Of 400 pairs of samples of one law, at most about 5% are below 0.05."""
    below = 0
    for seed in range(400):
        rng = np.random.default_rng(seed)
        below += ks_p_value(ks_distance(rng.normal(size=500), rng.normal(size=500)), 500) <= 0.05
    assert below / 400 <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / 400)
    assert ks_p_value(0.0, 500) == 1.0
    assert ks_p_value(0.1, 1000) == pytest.approx(2 * math.exp(-10))


def test_numbers_that_no_test_can_be_made_on_are_refused() -> None:
    """NaN, none at all, a single bin, a sample for which the bound is not known."""
    with pytest.raises(ConfigError, match="not finite"):
        stability_index([1.0], [math.nan])
    with pytest.raises(ConfigError, match="sample"):
        ks_distance([1.0], [])
    with pytest.raises(ConfigError, match="bins"):
        stability_index([1.0], [1.0], bins=1)
    with pytest.raises(ConfigError, match="fewer than 458"):
        ks_p_value(0.5, 457)
