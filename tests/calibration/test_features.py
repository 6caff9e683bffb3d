"""How candidates are described: free of scale, and defined for any scores."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cascade.calibration.features import Described, describe, pair_feature_names, query_feature_names
from tests.calibration.drawn import Lists, lists

_NAN = np.nan


def _same(one: Described, other: Described) -> bool:
    parts = ("pair", "query", "missing", "effects")
    return all(np.array_equal(getattr(one, part), getattr(other, part)) for part in parts)


def _column(described: Described, name: str, channels: tuple[str, ...]) -> list[float]:
    column: list[float] = described.pair[:, pair_feature_names(channels).index(name)].tolist()
    return column


@given(lists(), st.sampled_from(("small", "bm25", "dense")), st.sampled_from((0.125, 4.0, 2.0**40)))
def test_a_scale_of_one_scorer_leaves_no_trace(drawn: Lists, name: str, factor: float) -> None:
    """Stretching the scores of any one scorer changes no feature at all, to the last bit."""
    small = drawn.small * factor if name == "small" else drawn.small
    channels = {each: scores * factor if each == name else scores for each, scores in drawn.channels.items()}
    assert _same(describe(small, channels), describe(drawn.small, drawn.channels))


@given(lists(), st.sampled_from(("small", "bm25", "dense")), st.integers(-1000, 1000))
def test_a_constant_added_to_one_scorer_leaves_no_trace(drawn: Lists, name: str, constant: int) -> None:
    """Nor does shifting them, where the shifted scores are exact."""
    small = drawn.small + constant if name == "small" else drawn.small
    channels = {each: scores + constant if each == name else scores for each, scores in drawn.channels.items()}
    assert _same(describe(small, channels), describe(drawn.small, drawn.channels))


@given(lists())
def test_every_feature_is_a_number_within_its_range(drawn: Lists) -> None:
    """Whatever is missing or tied: z is clipped, ranks run from 1 to n, and nothing is NaN."""
    described = describe(drawn.small, drawn.channels)
    count = len(drawn.small)
    channels = tuple(drawn.channels)
    assert described.pair.shape == (count, len(pair_feature_names(channels)))
    assert described.query.shape == (len(query_feature_names(channels)),)
    assert np.isfinite(described.pair).all()
    assert np.isfinite(described.query).all()
    for name in ("small", *channels):
        assert all(-8.0 <= z <= 12.0 for z in _column(described, f"{name}.z", channels))
        ranks = np.exp(_column(described, f"{name}.log_rank", channels))
        assert ranks.min() >= 1.0 - 1e-9
        assert ranks.max() <= count + 1e-9
    assert described.effects[:, 0].tolist() == [1.0] * count


@given(lists(), st.randoms(use_true_random=False))
def test_candidates_are_described_alike_wherever_they_stand(drawn: Lists, random: object) -> None:
    """Where no scorer has ties, another order of the candidates is the same features in that order."""
    count = len(drawn.small)
    apart = np.arange(count) / 1024.0  # breaks ties within a scorer, in one way for all orders
    small = drawn.small + apart
    channels = {name: scores + apart[::-1] for name, scores in drawn.channels.items()}
    order = list(range(count))
    random.shuffle(order)  # type: ignore[attr-defined]
    one = describe(small, channels)
    other = describe(small[order], {name: scores[order] for name, scores in channels.items()})
    names = pair_feature_names(tuple(channels))
    kept = [place for place, name in enumerate(names) if name != "log_rrf_rank"]  # RRF may tie: the order decides
    assert np.allclose(one.pair[order][:, kept], other.pair[:, kept], rtol=0, atol=1e-12)
    assert one.query.tolist() == other.query.tolist()
    assert one.missing[order].tolist() == other.missing.tolist()


def test_known_features() -> None:
    """Median 3, spread 1.4826: the z of five candidates, their ranks, and the distance to the first."""
    described = describe(np.array([5.0, 1.0, 3.0, 2.0, 4.0]), {})
    sd = 1.4826
    assert _column(described, "small.z", ()) == pytest.approx([2 / sd, -2 / sd, 0.0, -1 / sd, 1 / sd])
    assert np.exp(_column(described, "small.log_rank", ())).round(9).tolist() == [1.0, 5.0, 3.0, 4.0, 2.0]
    assert _column(described, "small.z_minus_1st", ()) == pytest.approx([0.0, -4 / sd, -2 / sd, -3 / sd, -1 / sd])
    assert _column(described, "small.z_minus_10th", ())[1] == pytest.approx(0.0)  # fewer than ten: the last
    assert _column(described, "rrf", ()) == pytest.approx([1 / 61, 1 / 65, 1 / 63, 1 / 64, 1 / 62])
    gap_1_10, gap_10_30, tenth = described.query
    assert (gap_1_10, gap_10_30, tenth) == pytest.approx((4 / sd, 0.0, -2 / sd))


def test_of_an_even_number_the_median_lies_between() -> None:
    """And a missing score takes no part in it: it has the median's z, the last rank and no share of the RRF."""
    described = describe(np.array([4.0, _NAN, 1.0, 2.0, 3.0]), {})
    sd = 1.4826
    assert _column(described, "small.z", ()) == pytest.approx([1.5 / sd, 0.0, -1.5 / sd, -0.5 / sd, 0.5 / sd])
    assert np.exp(_column(described, "small.log_rank", ())).round(9).tolist() == [1.0, 5.0, 4.0, 3.0, 2.0]
    assert _column(described, "small.z_minus_1st", ())[1] == 0.0
    assert _column(described, "rrf", ())[1] == 0.0
    assert described.missing[:, 0].tolist() == [0.0, 1.0, 0.0, 0.0, 0.0]


@pytest.mark.parametrize("scores", [[_NAN] * 4, [0.0] * 4, [7.5] * 4, [np.inf, -np.inf, _NAN, _NAN]])
def test_a_scorer_that_says_nothing_has_no_spread(scores: list[float]) -> None:
    """None of its scores, or all alike: every z is 0, and nothing is divided by zero."""
    described = describe(np.array(scores), {})
    assert _column(described, "small.z", ()) == [0.0] * 4
    assert described.query.tolist() == [0.0] * 3


def test_scores_that_differ_by_rounding_only_are_alike() -> None:
    """A spread of the last bits is no spread."""
    scores = 0.3 + np.array([0.0, 1.0, 2.0, 3.0, 4.0]) * 1e-16
    assert _column(describe(scores, {}), "small.z", ()) == [0.0] * 5


def test_where_most_scores_are_equal_only_the_order_is_known() -> None:
    """With a median deviation of zero one score that stands out still has its rank."""
    described = describe(np.array([0.0, 0.0, 9.0, 0.0]), {})
    assert _column(described, "small.z", ()) == [0.0] * 4
    assert np.exp(_column(described, "small.log_rank", ())).round(9).tolist() == [2.0, 3.0, 1.0, 4.0]


def test_tiny_scores_are_told_apart() -> None:
    """Scores of a billionth of a billionth have z like any others: no size is built in."""
    scores = np.array([5.0, 1.0, 3.0, 2.0, 4.0])
    assert describe(scores * 2.0**-60, {}).pair.tolist() == describe(scores, {}).pair.tolist()


@pytest.mark.parametrize("huge", [3.4e38, 1e300, 1.7976931348623157e308])
def test_huge_scores_overflow_nothing(huge: float) -> None:
    """The largest floats of either sign, as some servers send for masked text, are far out and no more."""
    described = describe(np.array([1.0, 2.0, 3.0, huge, -huge]), {"bm25": np.array([huge, huge, -huge, -huge, 0.0])})
    assert _column(described, "small.z", ("bm25",))[3:] == [12.0, -8.0]
    assert np.isfinite(described.pair).all()


def test_one_candidate_is_first_of_all() -> None:
    """A list of one is described."""
    described = describe(np.array([2.5]), {"bm25": np.array([_NAN])})
    assert _column(described, "small.log_rank", ("bm25",)) == [0.0]
    assert described.missing.tolist() == [[0.0, 1.0]]
