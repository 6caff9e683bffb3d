"""Signals of one channel, against values worked out by other means."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from cascade.signals import channel
from cascade.signals.channel import Curve
from tests.signals.drawn import array

_LINE = Curve(np.arange(100.0))
_DRAWN = np.random.default_rng(7).gamma(4.0, 3.0, 100)


def _ranked() -> channel.FloatArray:
    return np.sort(_DRAWN)[::-1]


def _tail_sd() -> float:
    tail = _ranked()[25:]
    return 1.4826 * float(np.median(np.abs(tail - np.median(tail))))


def test_gap_is_the_lead_as_a_share_of_the_best() -> None:
    """Of 12 and 9 a quarter leads; the sign of the best does not turn it."""
    assert channel.gap(Curve(array([9.0, 12.0, 1.0]))) == 0.25
    assert channel.gap(Curve(array([-9.0, -12.0]))) == pytest.approx(1 / 3)


def test_gap_of_a_best_score_of_zero_is_missing_unless_it_is_shared() -> None:
    """Nothing can be a share of zero."""
    assert math.isnan(channel.gap(Curve(array([0.0, -1.0]))))
    assert channel.gap(Curve(array([0.0, 0.0]))) == 0.0


def test_ratios_are_clipped() -> None:
    """A gap of a million times the best score says no more than a thousand times."""
    assert channel.gap(Curve(array([1e-6, -1.0]))) == 1000.0


def test_gap_tail_and_separation_are_in_spreads_of_the_tail() -> None:
    """They equal their formulas, computed with numpy's own median."""
    ranked = _ranked()
    assert channel.gap_tail(Curve(_DRAWN)) == pytest.approx((ranked[0] - ranked[1]) / _tail_sd())
    separation = (ranked[:3].mean() - np.median(ranked[25:])) / _tail_sd()
    assert channel.separation(Curve(_DRAWN)) == pytest.approx(separation)


def test_a_straight_line_hardly_separates() -> None:
    """Its head stands 2.2 spreads off, below the 3 that a release asks for by default."""
    assert channel.separation(_LINE) == pytest.approx(2.2, abs=0.05)


def test_entropy_is_that_of_the_standardised_softmax() -> None:
    """It equals the textbook sum over probabilities, by ln n."""
    z = _DRAWN / _tail_sd()
    p = np.exp(z - z.max())
    p /= p.sum()
    assert channel.entropy(Curve(_DRAWN)) == pytest.approx(float(-(p * np.log(p)).sum()) / math.log(100))


def test_entropy_falls_to_zero_where_one_stands_out() -> None:
    """One score far above the rest takes all probability."""
    assert channel.entropy(Curve(np.append(_DRAWN, 1e6))) == pytest.approx(0.0, abs=1e-9)


def test_curvature_is_positive_where_the_head_is_steeper() -> None:
    """A line has next to none; a decay has some, by the formula."""
    assert channel.curvature(_LINE) == pytest.approx(0.0, abs=0.05)
    ranked = _ranked()
    wanted = ((ranked[0] - ranked[9]) - (ranked[9] - ranked[19])) / _tail_sd()
    assert channel.curvature(Curve(_DRAWN)) == pytest.approx(wanted)


def test_curvature_of_equal_scores_is_zero_and_of_fewer_than_twenty_missing() -> None:
    """It reads the 20th score."""
    assert channel.curvature(Curve(np.ones(20))) == 0.0
    assert math.isnan(channel.curvature(Curve(np.ones(19))))


def test_nqc_is_the_deviation_of_the_first_hundred_by_the_mean() -> None:
    """Of 150 scores the deviation is of the best 100, the mean of all."""
    scores = np.random.default_rng(3).gamma(4.0, 3.0, 150)
    wanted = np.sort(scores)[50:].std() / scores.mean()
    assert channel.nqc(Curve(scores)) == pytest.approx(wanted)


def test_nqc_about_a_mean_of_zero_is_missing() -> None:
    """Nothing is divided by zero."""
    assert math.isnan(channel.nqc(Curve(array([1.0, -1.0]))))


def test_wig_is_the_lead_of_the_first_five_over_the_root_of_the_query_length() -> None:
    """It equals its formula."""
    wanted = (_ranked()[:5].mean() - _DRAWN.mean()) / 3.0
    assert channel.wig(Curve(_DRAWN), 9) == pytest.approx(wanted)


def test_wig_beyond_what_a_float_holds_is_missing() -> None:
    """The unit of huge scores cannot be given back."""
    assert math.isnan(channel.wig(Curve(array([1.7e308, *[-1.7e308] * 9])), 1e-6))


def test_smv_reads_positive_scores() -> None:
    """It equals its formula; scores of zero and below add nothing, and a mean below zero is missing."""
    mean = _DRAWN.mean()
    assert channel.smv(Curve(_DRAWN)) == pytest.approx(float((_DRAWN * np.abs(np.log(_DRAWN / mean))).mean() / mean))
    assert channel.smv(Curve(array([3.0, 1.0, 0.0, 0.0]))) == pytest.approx((3 * math.log(3.0)) / 4)
    assert math.isnan(channel.smv(Curve(array([1.0, -3.0]))))


@pytest.mark.parametrize(
    ("distance", "curve"),
    [
        (channel.shape_exponential, np.exp(-5.0 * np.linspace(0.0, 1.0, 40))),
        (channel.shape_linear, np.linspace(0.0, 1.0, 40)),
        (channel.shape_uniform, np.ones(40)),
    ],
)
def test_a_shape_is_at_no_distance_from_itself(distance: Callable[[Curve], float], curve: channel.FloatArray) -> None:
    """Each decay is recognised, in any unit and from any zero."""
    assert distance(Curve(3.0 + 7.0 * curve)) == pytest.approx(0.0, abs=1e-9)


def test_shapes_are_root_mean_squared_distances() -> None:
    """A line lies from a constant as far as the mean square of x says."""
    assert channel.shape_uniform(_LINE) == pytest.approx(math.sqrt(float((np.linspace(0, 1, 100) ** 2).mean())))


def test_the_scale_of_a_tied_tail_falls_back() -> None:
    """More than half the tail tied: its mean deviation; all of it tied: that of the whole list."""
    mostly = Curve(array([9.0, 8.0, *[0.0] * 6, -1.0, -1.0]))  # tail: the lower five, three of them tied
    assert mostly.scale == pytest.approx(1.2533 * 2 / 5)
    wholly = Curve(array([9.0, 0.0, 0.0, 0.0, 0.0, 0.0]))
    assert wholly.scale == pytest.approx(1.2533 * 9 / 6)
    assert Curve(np.ones(8)).scale == 0.0


def test_a_tail_that_is_tied_but_for_rounding_counts_as_tied() -> None:
    """Noise in the last place is no spread, so a gap is not measured in it."""
    noisy = array([9.0, *(1e-13 * np.arange(9))])
    assert channel.gap_tail(Curve(noisy)) == pytest.approx(channel.gap_tail(Curve(np.round(noisy, 6))), rel=1e-6)


@pytest.mark.parametrize("factor", [1e300, 1e-300])
def test_huge_and_tiny_scores_have_the_shape_of_plain_ones(factor: float) -> None:
    """No square overflows or vanishes on the way."""
    plain, moved = Curve(_DRAWN), Curve(_DRAWN * factor)
    for measure in (channel.gap, channel.gap_tail, channel.entropy, channel.nqc, channel.smv, channel.shape_linear):
        assert measure(moved) == pytest.approx(measure(plain), rel=1e-9)


@pytest.mark.parametrize("count", [0, 1, 2])
def test_short_lists_are_missing_what_they_cannot_say(count: int) -> None:
    """Two scores have a gap, but no tail."""
    curve = Curve(np.arange(count, dtype=np.float64))
    shapes = (channel.gap_tail, channel.separation, channel.entropy, channel.curvature, channel.shape_uniform)
    assert all(math.isnan(measure(curve)) for measure in shapes)
    spreads = (channel.gap, channel.nqc, channel.smv, lambda curve: channel.wig(curve, 1.0))
    assert [math.isnan(measure(curve)) for measure in spreads] == [count < 2] * 4


def test_order_and_places_leave_missing_scores_out() -> None:
    """Ties keep first-stage order; a missing candidate ranks behind all."""
    curve = Curve(array([1.0, math.nan, 3.0, 1.0, math.inf]))
    assert curve.order.tolist() == [2, 0, 3]
    assert curve.places.tolist() == [1, 5, 0, 2, 5]
    assert curve.count == 3
