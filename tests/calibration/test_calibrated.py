"""A calibration at work: estimates for any scores, where they hold, and what follows from them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cascade.calibration.artefact import AcceptableModel, FinalOrder, IsotonicMap, PlattMap
from cascade.calibration.calibrated import Calibration, to_additive_space
from cascade.calibration.gain import entropy, expected_loss, margin
from cascade.testing.calibration import scripted_artefact, scripted_calibration
from cascade.types import ScoreSpace
from tests.calibration.drawn import Lists, lists

FloatArray = npt.NDArray[np.float64]

_NAN = np.nan
_CHANNELS = ("bm25", "dense")
_TWO_ROUNDS = scripted_calibration(_CHANNELS, channel_weight=0.5, second_round=True, least_candidates=1)


def _with(channels: tuple[str, ...] = _CHANNELS, **parts: Any) -> Calibration:
    """Return a calibration with parts put in that the scripted one lacks."""
    return Calibration(scripted_artefact(channels, second_round=True).model_copy(update=parts), "sha256:1")


def _bm25(scores: list[float]) -> Mapping[str, FloatArray]:
    return {"bm25": np.array(scores)}


@given(lists())
def test_probabilities_are_nested_and_in_range(drawn: Lists) -> None:
    """Whatever is missing: 0 <= p(1) <= p(3) <= p(5) <= p(10) <= 1."""
    p = _TWO_ROUNDS.entry(drawn.small, drawn.channels)
    assert p.shape == (len(drawn.small), 4)
    assert (p >= 0.0).all()
    assert (p <= 1.0).all()
    assert (np.diff(p, axis=1) >= 0.0).all()


@given(lists(), st.lists(st.booleans(), min_size=40, max_size=40), st.integers(0, 1000))
def test_a_second_estimate_is_nested_and_leaves_the_scored_alone(drawn: Lists, seen: list[bool], seed: int) -> None:
    """It is about candidates that were not scored; where none was it is the first estimate."""
    count = len(drawn.small)
    scored = np.array(seen[:count])
    large = np.where(scored, np.random.default_rng(seed).normal(size=count), _NAN)
    first = _TWO_ROUNDS.estimate(drawn.small, drawn.channels)
    again = _TWO_ROUNDS.estimate_again(first, large, 5)
    assert (np.diff(again, axis=1) >= 0.0).all()
    assert (again >= 0.0).all()
    assert (again <= 1.0).all()
    assert np.array_equal(again[scored], first.p[scored])
    if not scored.any():
        assert again is first.p


def test_a_calibration_without_a_second_round_never_estimates_again() -> None:
    """Large scores seen change nothing."""
    calibration = scripted_calibration(("bm25",))
    first = calibration.estimate(np.array([1.0, 2.0, 3.0]), _bm25([1.0, 2.0, 3.0]))
    assert calibration.estimate_again(first, np.array([1.0, _NAN, _NAN]), 5) is first.p
    assert calibration.second_round_from is None
    assert _TWO_ROUNDS.second_round_from == 1


def test_a_query_in_which_the_small_scores_mislead_leaves_more_open() -> None:
    """Where the large stage turned the scored ones round, those of lower small scores are likelier than where it agreed."""
    calibration = scripted_calibration(("bm25",), second_round=True)
    first = calibration.estimate(np.arange(12.0), _bm25([0.0] * 12))
    agrees, turned = np.full(12, _NAN), np.full(12, _NAN)
    agrees[6:] = [3.0, 3.1, 3.2, 3.3, 3.4, 3.5]
    turned[6:] = agrees[6:][::-1]
    p_agrees, p_turned = (calibration.estimate_again(first, seen, 5)[:6, 2] for seen in (agrees, turned))
    assert (p_agrees < p_turned).all()


@given(lists(), st.randoms(use_true_random=False))
def test_estimates_follow_the_candidates(drawn: Lists, random: Any) -> None:
    """Another first-stage order of the same candidates, none of them tied, has the same estimates in that order."""
    count = len(drawn.small)
    apart = np.arange(count) / 1024.0
    small = drawn.small + apart
    channels = {name: scores - apart for name, scores in drawn.channels.items()}
    order = list(range(count))
    random.shuffle(order)
    p = _TWO_ROUNDS.entry(small, channels)
    again = _TWO_ROUNDS.entry(small[order], {name: scores[order] for name, scores in channels.items()})
    assert np.allclose(p[order], again, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("small", "channels", "why"),
    [
        ([1.0], {"bm25": [1.0]}, "candidates_out_of_range"),
        ([1.0] * 201, {"bm25": [1.0] * 201}, "candidates_out_of_range"),
        ([], {"bm25": []}, "candidates_out_of_range"),
        ([1.0, 2.0], {}, "channel_missing"),
        ([1.0, 2.0], {"dense": [1.0, 2.0]}, "channel_missing"),
        ([1.0, _NAN, _NAN, _NAN], {"bm25": [1.0] * 4}, "too_few_scores"),
        ([1.0] * 4, {"bm25": [1.0, _NAN, _NAN, _NAN]}, "too_few_scores"),
        ([1.0, _NAN], {"bm25": [1.0, _NAN]}, None),
        ([1.0, 2.0], {"bm25": [1.0, 2.0], "dense": [_NAN, _NAN]}, None),
    ],
)
def test_a_misfit_says_why(small: list[float], channels: dict[str, list[float]], why: str | None) -> None:
    """Too few or many candidates, a channel that is not there, too few scores; other channels do not matter."""
    artefact = scripted_artefact(("bm25",), least_present={"small": 0.5, "bm25": 0.5})
    calibration = Calibration(artefact, "sha256:1")
    arrays = {name: np.array(scores) for name, scores in channels.items()}
    assert calibration.misfit(np.array(small), arrays) == why


def test_a_small_stage_that_scored_nothing_never_fits() -> None:
    """Whatever share the artefact asks for: nothing is known of the candidates then."""
    calibration = scripted_calibration(("bm25",))
    assert calibration.misfit(np.full(3, _NAN), _bm25([1.0, 2.0, 3.0])) == "too_few_scores"


def test_small_probabilities_are_read_as_logits() -> None:
    """An artefact for probabilities estimates of them what another estimates of their logits."""
    logits = np.array([-2.0, -0.5, 0.0, 1.0, 4.0])
    channels = _bm25([1.0, 2.0, 3.0, 4.0, 5.0])
    of_logits = scripted_calibration().entry(logits, channels)
    artefact = scripted_artefact(small_space=ScoreSpace.PROBABILITY)
    of_probabilities = Calibration(artefact, "sha256:1").entry(1.0 / (1.0 + np.exp(-logits)), channels)
    assert of_probabilities == pytest.approx(of_logits, abs=1e-9)


def test_the_additive_space_of_probabilities_is_bounded() -> None:
    """0 and 1 have finite logits, out-of-range values count as those, and NaN stays; other spaces are as they are."""
    scores = np.array([0.0, 0.5, 1.0, 7.0, _NAN])
    logits = to_additive_space(scores, ScoreSpace.PROBABILITY)
    assert logits[:4] == pytest.approx([-math.log(1e6 - 1), 0.0, math.log(1e6 - 1), math.log(1e6 - 1)])
    assert math.isnan(logits[4])
    for space in (ScoreSpace.LOGIT, ScoreSpace.COSINE):
        assert to_additive_space(scores, space) is scores


def test_a_summary_tells_what_the_estimates_say_of_the_small_order() -> None:
    """Highest p(1), margin, entropy and expected loss, each by its own definition."""
    calibration = scripted_calibration(("bm25",))
    p = calibration.entry(np.array([3.0, 1.0, 2.0, 0.0]), _bm25([1.0] * 4))
    order = np.array([0, 2, 1, 3])
    summary = calibration.summary(p, order, 3)
    assert (summary.k, summary.p_first, summary.p_acceptable) == (3, float(p[:, 0].max()), None)
    assert (summary.margin, summary.entropy) == (margin(p, 3), entropy(p, 3))
    assert summary.expected_loss == expected_loss(p, order, 3)


def test_how_likely_the_small_order_is_acceptable_is_told_at_its_own_length() -> None:
    """A logistic model of loss, margin and entropy; at another k than it was fitted for it says nothing."""
    model = AcceptableModel(weights=(-3.0, 2.0, -0.5), intercept=0.25, target="t", share=0.5, brier=0.2)
    calibration = _with(acceptable=model)
    p = calibration.entry(np.arange(8.0), {name: np.arange(8.0) for name in _CHANNELS})
    order = np.arange(8)[::-1]
    told = calibration.summary(p, order, 5)
    odds = 0.25 - 3.0 * told.expected_loss + 2.0 * told.margin - 0.5 * told.entropy
    assert told.p_acceptable == pytest.approx(1.0 / (1.0 + math.exp(-odds)))
    assert calibration.summary(p, order, 3).p_acceptable is None


def test_relevance_is_the_map_of_the_stage_in_its_own_space() -> None:
    """A stage without a map says nothing; a probability goes through its logit."""
    isotonic = IsotonicMap(kind="isotonic", scores=(-1.0, 1.0), probabilities=(0.2, 0.6))
    artefact = scripted_artefact(large_space=ScoreSpace.PROBABILITY)
    plain = Calibration(artefact, "sha256:1")
    assert (plain.relevance("small", 0.0), plain.relevance("large", 0.0)) == (None, None)
    maps = {"small": isotonic, "large": PlattMap(slope=2.0, intercept=0.0)}
    calibration = Calibration(artefact.model_copy(update={"score_maps": maps}), "sha256:1")
    assert calibration.relevance("small", 0.0) == pytest.approx(0.4)
    assert calibration.relevance("large", 0.75) == pytest.approx(0.9)  # odds of 3, squared


@given(lists(), st.integers(-1000, 1000), st.integers(0, 1000))
def test_a_fitted_order_knows_no_level(drawn: Lists, constant: int, seed: int) -> None:
    """A constant added to all large scores leaves what the block is ordered by as it is, to the last bit."""
    order = FinalOrder(large=0.3, features={"rrf": 20.0, "bm25.z": 0.1}, gain=0.02, low=0.01, high=0.03)
    calibration = _with(final_order=order)
    count = len(drawn.small)
    large = np.round(np.random.default_rng(seed).normal(size=count) * 8) / 8
    large[::3] = _NAN
    first = calibration.estimate(drawn.small, drawn.channels)
    one, other = calibration.final_scores(first, large), calibration.final_scores(first, large + constant)
    assert one is not None
    assert other is not None
    assert np.array_equal(one, other, equal_nan=True)
    assert np.array_equal(np.isnan(one), np.isnan(large))


def test_a_fitted_order_weighs_the_large_score_and_the_features() -> None:
    """Differences between candidates are those of the weighted sum; without an order or an estimate there is none."""
    order = FinalOrder(large=0.5, features={"bm25.z": 2.0}, gain=0.02, low=0.01, high=0.03)
    calibration = _with(("bm25",), final_order=order)
    first = calibration.estimate(np.array([1.0, 2.0, 3.0]), _bm25([2.0, 4.0, 6.0]))
    scores = calibration.final_scores(first, np.array([7.0, 5.0, _NAN]))
    assert scores is not None
    assert scores[0] - scores[1] == pytest.approx(0.5 * 2.0 - 2.0 / 1.4826)
    assert calibration.final_scores(None, np.array([7.0])) is None
    assert scripted_calibration(("bm25",)).final_scores(first, np.array([7.0])) is None


def test_the_value_is_at_the_calibrations_own_length_where_none_is_named() -> None:
    """That of the artefact, else the one given."""
    p = np.array([[0.1, 0.2, 0.3, 0.9]])
    calibration = scripted_calibration(k=5)
    assert calibration.value(p).tolist() == calibration.value(p, 5).tolist() != calibration.value(p, 10).tolist()
