"""Agreement of two orders, against their definitions."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cascade.signals.agreement import kendall, overlap, rbo, source_diversity
from cascade.signals.channel import Curve
from tests.signals.drawn import array

_NONE = Curve(np.full(4, np.nan))


def _curve(order: list[int]) -> Curve:
    scores = np.zeros(len(order))
    scores[order] = np.arange(len(order), 0, -1)
    return Curve(scores)


def _rbo_by_definition(one: list[int], other: list[int], p: float) -> float:
    depth = min(len(one), len(other))
    common = [len(set(one[:d]) & set(other[:d])) for d in range(1, depth + 1)]
    total = sum(x / d * p**d for d, x in enumerate(common, start=1))
    return common[-1] / depth * p**depth + (1 - p) / p * total


_ORDER = st.integers(1, 30).flatmap(lambda count: st.permutations(range(count)))
_SCORES = st.lists(st.one_of(st.just(math.nan), st.integers(0, 9).map(float)), min_size=1, max_size=30)


def test_overlap_counts_what_both_have_on_top() -> None:
    """Three of the first five are common; k shrinks to a list that is shorter."""
    one, other = _curve([0, 1, 2, 3, 4, 5, 6, 7]), _curve([4, 3, 2, 7, 6, 5, 1, 0])
    assert overlap(one, other, 5) == pytest.approx(3 / 5)
    assert overlap(one, Curve(array([math.nan] * 7 + [1.0])), 5) == 0.0
    assert overlap(one, one, 20) == 1.0


@given(_ORDER, st.data())
def test_rbo_is_the_extrapolated_sum(one: list[int], data: st.DataObject) -> None:
    """The table over candidates gives the sum over depths."""
    other = data.draw(st.permutations(one))
    assert rbo(_curve(one), _curve(other)) == pytest.approx(_rbo_by_definition(one, other, 0.9))


@given(_SCORES, _SCORES)
def test_rbo_of_lists_with_gaps_reads_to_the_shorter(a: list[float], b: list[float]) -> None:
    """Candidates that a list lacks are not in it."""
    count = min(len(a), len(b))
    one, other = Curve(array(a[:count])), Curve(array(b[:count]))
    if not one.count or not other.count:
        assert math.isnan(rbo(one, other))
        return
    wanted = _rbo_by_definition(one.order.tolist(), other.order.tolist(), 0.9)
    assert rbo(one, other) == pytest.approx(wanted)


@given(_ORDER)
def test_an_order_agrees_with_itself(order: list[int]) -> None:
    """Every measure is 1, and tau is -1 against the reverse."""
    curve = _curve(order)
    assert rbo(curve, curve) == pytest.approx(1.0)
    assert overlap(curve, curve, 10) == 1.0
    if 1 < len(order) <= 20:
        assert kendall(curve, curve) == pytest.approx(1.0)
        assert kendall(curve, _curve(order[::-1])) == pytest.approx(-1.0)


@given(_SCORES, _SCORES)
def test_kendall_is_tau_b_over_the_union_of_the_tops(a: list[float], b: list[float]) -> None:
    """Counting pairs one by one gives the same; a missing candidate ties below all."""
    count = min(len(a), len(b))
    one, other = Curve(array(a[:count])), Curve(array(b[:count]))
    among = sorted({*one.order[:20].tolist(), *other.order[:20].tolist()})
    below_all = [(-1.0 if math.isnan(a[i]) else a[i], -1.0 if math.isnan(b[i]) else b[i]) for i in among]
    pairs = [(np.sign(x[0] - y[0]), np.sign(x[1] - y[1])) for n, x in enumerate(below_all) for y in below_all[n + 1 :]]
    untied = math.sqrt(sum(x != 0 for x, _ in pairs) * sum(y != 0 for _, y in pairs))
    value = kendall(one, other)
    if not one.count or not other.count or not untied:
        assert math.isnan(value)
    else:
        assert value == pytest.approx(sum(float(x * y) for x, y in pairs) / untied)


@given(_SCORES, _SCORES)
def test_agreement_is_symmetric(a: list[float], b: list[float]) -> None:
    """Which of the two comes first does not matter."""
    count = min(len(a), len(b))
    one, other = Curve(array(a[:count])), Curve(array(b[:count]))
    for measure in (rbo, kendall, lambda x, y: overlap(x, y, 5), lambda x, y: source_diversity([x, y])):
        assert measure(one, other) == pytest.approx(measure(other, one), nan_ok=True)


def test_a_channel_without_scores_agrees_with_nothing() -> None:
    """Each measure is missing, not zero."""
    some = _curve([0, 1, 2, 3])
    assert math.isnan(overlap(some, _NONE, 5))
    assert math.isnan(rbo(_NONE, some))
    assert math.isnan(kendall(_NONE, some))
    assert math.isnan(kendall(some, _NONE))
    assert math.isnan(source_diversity([some, _NONE]))


def test_diversity_is_full_where_channels_lead_alike() -> None:
    """Two channels in opposite order lead half the candidates each; equal ones share all."""
    one, other = _curve([0, 1, 2, 3]), _curve([3, 2, 1, 0])
    assert source_diversity([one, other]) == pytest.approx(1.0)
    assert source_diversity([one, one]) == pytest.approx(1.0)


def test_diversity_is_nothing_where_one_channel_leads_everywhere() -> None:
    """The other ranks each candidate later: it has those beyond the top 20 first."""
    leading = _curve(list(range(40)))
    trailing = _curve([*range(20, 40), *range(20)])
    assert source_diversity([leading, trailing]) == 0.0


def test_diversity_is_the_entropy_of_the_shares() -> None:
    """Three of four led by one channel, and one shared with the other; one that none has is left out."""
    one = Curve(array([4.0, 3.0, 2.0, 1.0, math.nan]))
    other = Curve(array([4.0, math.nan, math.nan, math.nan, math.nan]))
    shares = (3.5 / 4, 0.5 / 4)
    assert source_diversity([one, other]) == pytest.approx(-sum(s * math.log(s) for s in shares) / math.log(2))


def test_diversity_of_candidates_that_no_channel_scored_is_missing() -> None:
    """The top 20 have no score at all, though a later candidate has."""
    late = Curve(array([math.nan] * 20 + [1.0]))
    assert math.isnan(source_diversity([late, late]))
