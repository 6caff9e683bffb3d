"""One order from two rounds, and its outward scores."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cascade.decision import Movement
from cascade.policy.merge import logit, merge, movement, order_by_score, outward_scores, rank_changes, to_unit
from cascade.types import ScoreSpace, StageName

_LARGE, _SMALL, _RETRIEVAL = StageName.LARGE, StageName.SMALL, StageName.RETRIEVAL
_RAW = st.floats(allow_nan=False, allow_infinity=False)


def test_merge_puts_the_large_block_over_the_small_order_over_the_tail() -> None:
    """Each part is in its own stage's order, and each place names its stage."""
    order, stages = merge(6, {0: 1.0, 1: 2.0, 2: 3.0, 4: 2.0}, {1: -5.0, 4: -4.0})
    assert order == [4, 1, 2, 0, 3, 5]
    assert stages == [_LARGE, _LARGE, _SMALL, _SMALL, _RETRIEVAL, _RETRIEVAL]


@pytest.mark.parametrize("nothing", [None, {}])
def test_merge_without_scores_keeps_first_stage_order(nothing: dict[int, float] | None) -> None:
    """A stage that scored nothing leaves the order as it came."""
    assert merge(3, nothing, nothing) == ([0, 1, 2], [_RETRIEVAL] * 3)


def test_merge_of_nothing_is_empty() -> None:
    """No candidates make an empty order."""
    assert merge(0, None, None) == ([], [])


@given(st.integers(0, 12), st.data())
def test_merge_is_a_permutation_with_ties_in_first_stage_order(count: int, data: st.DataObject) -> None:
    """Every index comes once; of two that a stage scored alike, the earlier one comes first."""
    some = st.dictionaries(st.integers(0, count - 1), st.sampled_from((-1.0, -0.0, 0.0, 1.0))) if count else st.just({})
    small, large = data.draw(some), data.draw(some)
    order, stages = merge(count, small, large)
    assert sorted(order) == list(range(count))
    assert stages == sorted(stages, key=[_LARGE, _SMALL, _RETRIEVAL].index)
    for (first, its), (second, also) in pairwise(zip(order, stages, strict=True)):
        if its is also:
            scores = {_LARGE: large, _SMALL: small, _RETRIEVAL: {}}[its]
            assert (-scores.get(first, 0.0), first) < (-scores.get(second, 0.0), second)


def test_order_by_score_keeps_the_order_given_among_ties() -> None:
    """Ties are settled by the order given, not by index."""
    assert order_by_score([3, 1, 2], {1: 0.5, 2: 0.5, 3: 0.5}) == [3, 1, 2]
    assert order_by_score([3, 1, 2], {1: 0.5, 2: 0.75, 3: 0.5}) == [2, 3, 1]


@pytest.mark.parametrize(
    ("space", "raw", "unit"),
    [
        (ScoreSpace.LOGIT, 0.0, 0.5),
        (ScoreSpace.LOGIT, 2.0, 0.8807970779778823),
        (ScoreSpace.LOGIT, -2.0, 0.11920292202211755),
        (ScoreSpace.LOGIT, -700.0, 0.0),
        (ScoreSpace.LOGIT, 1e308, 1.0),
        (ScoreSpace.LOGIT, -1e308, 0.0),
        (ScoreSpace.PROBABILITY, 0.25, 0.25),
        (ScoreSpace.PROBABILITY, 1e308, 1.0),
        (ScoreSpace.PROBABILITY, -1e308, 0.0),
        (ScoreSpace.COSINE, -1.0, 0.0),
        (ScoreSpace.COSINE, 0.5, 0.75),
        (ScoreSpace.COSINE, 1.0, 1.0),
        (ScoreSpace.COSINE, 1e308, 1.0),
        (ScoreSpace.COSINE, -1e308, 0.0),
    ],
)
def test_e5_to_unit_maps_by_the_declared_space(space: ScoreSpace, raw: float, unit: float) -> None:
    """A logit goes through the sigmoid once, a probability is itself, a cosine moves from [-1, 1]; all are clipped."""
    assert to_unit(raw, space) == pytest.approx(unit, rel=1e-12, abs=1e-300)


@given(st.sampled_from(ScoreSpace), _RAW, _RAW)
def test_to_unit_is_monotone_within_zero_and_one(space: ScoreSpace, one: float, other: float) -> None:
    """Of two raw scores the greater never maps lower, beyond what rounding does in the last place."""
    low, high = to_unit(min(one, other), space), to_unit(max(one, other), space)
    assert 0.0 <= low <= 1.0
    assert 0.0 <= high <= 1.0
    assert low <= high * (1 + 1e-15)


@given(st.floats(-30, 30))
def test_logit_undoes_to_unit(score: float) -> None:
    """The logit of the probability of a logit is that logit."""
    assert logit(to_unit(score, ScoreSpace.LOGIT)) == pytest.approx(score, abs=1e-2 if score > 20 else 1e-6)


@st.composite
def _placed(draw: st.DrawFn) -> tuple[list[StageName], list[float]]:
    """Draw the stages of an order, and unit scores that need not fall."""
    large, small, tail = (draw(st.integers(0, 20)) for _ in range(3))
    stages = [_LARGE] * large + [_SMALL] * small + [_RETRIEVAL] * tail
    units = st.floats(0.0, 1.0) | st.sampled_from((0.0, 1.0, 1e-300, 5e-324, 1.0 - 2.0**-53, 0.5))
    return stages, draw(st.lists(units, min_size=large + small, max_size=large + small))


@given(_placed())
def test_outward_scores_fall_strictly_within_zero_and_one_in_float32(
    placed: tuple[list[StageName], list[float]],
) -> None:
    """Whatever stages said, places have falling scores that a client's float32 still tells apart."""
    stages, units = placed
    scores = outward_scores(range(len(stages)), stages, lambda stage, index: units[index])
    assert len(scores) == len(stages)
    for narrow in (scores, np.array(scores, dtype=np.float32).tolist()):
        assert all(0.0 < score < 1.0 for score in narrow)
        assert all(high > low for high, low in pairwise(narrow))
    logits = [logit(score) for score in scores]
    for narrow in (logits, np.array(logits, dtype=np.float32).tolist()):
        assert all(map(math.isfinite, narrow))
        assert all(high > low for high, low in pairwise(narrow))


@given(_placed())
def test_outward_scores_never_exceed_a_stages_own(placed: tuple[list[StageName], list[float]]) -> None:
    """A place scores what its stage said, or less where the place before forces it down."""
    stages, units = placed
    scores = outward_scores(range(len(stages)), stages, lambda stage, index: units[index])
    for score, unit in zip(scores, units, strict=False):
        assert score <= max(unit, 1e-30)


def test_outward_scores_that_fall_by_themselves_stay_what_the_stage_said() -> None:
    """Scores clearly apart go out unchanged, by stage and index."""
    said = {(_LARGE, 2): 0.9, (_LARGE, 0): 0.5, (_SMALL, 1): 0.25}
    scores = outward_scores([2, 0, 1], [_LARGE, _LARGE, _SMALL], lambda stage, index: said[stage, index])
    assert scores == [0.9, 0.5, 0.25]


def test_a_small_score_is_held_below_the_large_block() -> None:
    """The running minimum keeps the order decided when a client sorts again."""
    scores = outward_scores([0, 1], [_LARGE, _SMALL], lambda stage, index: 0.125 if stage is _LARGE else 0.99)
    assert scores[0] == 0.125
    assert 0.125 * (1 - 1e-6) < scores[1] < 0.125


def test_e4_scores_that_are_all_nought_still_fall() -> None:
    """A model that saturates at 0 or at 1 gives an order that no client can turn round."""
    for said in (0.0, 1.0):
        scores = outward_scores(range(500), [_SMALL] * 500, lambda stage, index, said=said: said)  # type: ignore[misc]
        assert all(high > low for high, low in pairwise(np.array(scores, dtype=np.float32).tolist()))


def test_places_behind_the_scored_share_what_is_left_evenly() -> None:
    """Three unscored places divide the room between the last score and zero into four."""
    scores = outward_scores(range(4), [_LARGE, *[_RETRIEVAL] * 3], lambda stage, index: 0.8)
    assert scores == [0.8, pytest.approx(0.6), pytest.approx(0.4), pytest.approx(0.2)]


def test_an_order_that_no_stage_scored_carries_its_ranks() -> None:
    """The place at rank r of n carries (n - r) / n, the first held just below 1, and no stage is asked."""
    scores = outward_scores(range(4), [_RETRIEVAL] * 4, lambda stage, index: pytest.fail("nothing was scored"))
    assert scores == [1 - 2.0**-24, 0.75, 0.5, 0.25]


@pytest.mark.parametrize(
    ("order", "k", "changes"),
    [([0, 1, 2], 5, 0), ([1, 0, 2], 5, 2), ([2, 1, 0], 1, 1), ([0, 2, 1], 1, 0), ([], 5, 0)],
)
def test_rank_changes_counts_places_with_another_candidate(order: list[int], k: int, changes: int) -> None:
    """Only the first k places count."""
    assert rank_changes(order, k) == changes


def test_movement_is_what_the_large_stage_makes_of_the_small_ones_first_ten() -> None:
    """Of twelve in small order the last two come on top: eight stay among the ten, all ten down by two places."""
    small = {index: 12.0 - index for index in range(12)}
    order, _ = merge(12, small, {10: 2.0, 11: 1.0})
    assert movement(small, order) == Movement(overlap=0.8, displacement=2.0)
    assert movement(small, list(range(12))) == Movement(overlap=1.0, displacement=0.0)


def test_movement_within_the_first_ten_is_displacement_alone() -> None:
    """Two that change places each move by one; of three candidates all count."""
    small = {0: 3.0, 1: 2.0, 2: 1.0}
    assert movement(small, [1, 0, 2]) == Movement(overlap=1.0, displacement=2 / 3)


def test_there_is_no_movement_without_small_scores() -> None:
    """A query that went past the small stage has one order."""
    assert movement({}, [1, 0]) is None
