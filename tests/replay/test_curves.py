"""Shares recovered against shares of cost, on curves whose figures are known by hand."""

from __future__ import annotations

import numpy as np
import pytest

from cascade.replay.curves import (
    Curve,
    area_10_50,
    cost_at_recovered,
    curve_of,
    ends_of,
    gap_is_shown,
    quality_at_cost,
)
from cascade.replay.intervals import resampled
from tests.replay.sweeps import sweep

_SMALL = sweep("small", [[0.25] * 10], [[0.0] * 10])
_LARGE = sweep("large", [[0.75] * 10], [[100.0] * 10])
_ONCE = resampled(10, 1, seed=0)


def _curve(quality: list[float], pairs: list[float]) -> Curve:
    """Return the curve of a policy that treats ten queries alike, between .25 and .75 at 100 pairs."""
    policy = sweep("p", [[each] * 10 for each in quality], [[each] * 10 for each in pairs])
    return curve_of(policy, ends_of(_SMALL, _LARGE, _ONCE), _ONCE)


def test_a_curve_runs_from_always_small_cheapest_first() -> None:
    """Settings are sorted by what they cost, behind the small order for nothing."""
    curve = _curve([0.75, 0.375, 0.625], [80.0, 10.0, 30.0])
    assert curve.share[0].tolist() == pytest.approx([0.0, 0.1, 0.3, 0.8])
    assert curve.quality[0].tolist() == [0.25, 0.375, 0.625, 0.75]
    assert curve.recovered[0].tolist() == [0.0, 0.25, 0.75, 1.0]


@pytest.mark.parametrize(
    ("level", "cost"), [(0.80, 0.4), (0.75, 0.3), (0.5, 0.2), (0.125, 0.05), (1.0, 0.8), (1.01, np.inf)]
)
def test_the_cost_at_a_level_is_linear_between_settings(level: float, cost: float) -> None:
    """A level that is never reached costs infinitely much."""
    assert cost_at_recovered(_curve([0.75, 0.375, 0.625], [80.0, 10.0, 30.0]), level)[0] == pytest.approx(cost)


def test_the_cost_at_a_level_is_where_it_is_first_reached() -> None:
    """A curve that rises above the large stage and falls again is credited with its first crossing."""
    assert cost_at_recovered(_curve([0.75, 0.875, 0.625], [100.0, 50.0, 20.0]), 1.0)[0] == pytest.approx(0.35)


def test_settings_of_equal_cost_do_not_divide_by_nought() -> None:
    """Two settings at the same cost, and one that costs nothing, are points like others."""
    curve = _curve([0.75, 0.625, 0.375, 0.25], [50.0, 50.0, 0.0, 0.0])
    assert cost_at_recovered(curve, 0.25)[0] == 0.0
    assert cost_at_recovered(curve, 0.95)[0] == pytest.approx(0.475)


def test_the_area_of_a_straight_line_is_its_middle() -> None:
    """Recovering in proportion to cost recovers .3 on average between .1 and .5."""
    assert area_10_50(_curve([0.75], [100.0]))[0] == pytest.approx(0.3)


def test_above_its_last_setting_a_policy_keeps_what_it_reached() -> None:
    """It is not credited with always-large, which it never chooses."""
    assert area_10_50(_curve([0.5], [10.0]))[0] == pytest.approx(0.5)


def test_quality_at_a_cost_is_that_of_a_coin_between_settings() -> None:
    """Each resample has a cost of its own."""
    assert quality_at_cost(_curve([0.75], [100.0]), np.array([0.5, 0.25])).tolist() == pytest.approx([0.5, 0.375])


def test_where_the_large_stage_is_no_better_nothing_is_recovered() -> None:
    """Without a difference no level is reached and no area is known, and no warning is raised."""
    ends = ends_of(sweep("small", [[0.8] * 10], [[0.0] * 10]), _LARGE, _ONCE)
    curve = curve_of(sweep("p", [[0.3] * 10, [0.6] * 10], [[100.0] * 10, [0.0] * 10]), ends, _ONCE)
    assert cost_at_recovered(curve, 0.8).tolist() == [np.inf, np.inf]
    assert area_10_50(curve).tolist() == [-np.inf, -np.inf]


@pytest.mark.parametrize(("noise", "shown"), [(0.05, True), (5.0, False)])
def test_a_gap_is_shown_where_its_interval_is_above_nought(noise: float, shown: bool) -> None:
    """The same mean difference counts or does not by how it varies between queries."""
    small = np.zeros(100)
    large = 0.1 + noise * np.tile([1.0, -1.0], 50)
    drawn = resampled(100, 1000, seed=0)
    ends = ends_of(
        sweep("small", [small.tolist()], [[0.0] * 100]), sweep("large", [large.tolist()], [[9.0] * 100]), drawn
    )
    found, gap = gap_is_shown(ends, 100)
    assert found is shown
    assert gap.value == pytest.approx(0.1)


def test_a_gap_of_few_queries_is_not_shown() -> None:
    """Without an interval there is no evidence."""
    drawn = resampled(3, 1000, seed=0)
    ends = ends_of(sweep("small", [[0.0] * 3], [[0.0] * 3]), sweep("large", [[1.0] * 3], [[9.0] * 3]), drawn)
    assert not gap_is_shown(ends, 3)[0]
