"""Signals of the small order and of the head."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cascade.signals.channel import Curve
from cascade.signals.order import duplicate_head, flips, kendall_first, rbo_first
from cascade.text import Text
from tests.signals.drawn import array


def test_agreement_with_the_first_stage_is_over_what_was_scored() -> None:
    """A small order that keeps the first stage's agrees wholly, though the rest was not scored."""
    same = Curve(array([3.0, math.nan, 2.0, 1.0, math.nan]))
    assert rbo_first(same) == pytest.approx(1.0)
    assert kendall_first(same) == pytest.approx(1.0)
    assert kendall_first(Curve(array([1.0, 2.0, 3.0]))) == pytest.approx(-1.0)


def test_agreement_of_nothing_scored_is_missing() -> None:
    """There is no small order."""
    assert math.isnan(rbo_first(Curve(np.zeros(0))))
    assert math.isnan(kendall_first(Curve(np.zeros(0))))


def test_flips_are_what_drawing_the_noise_again_swaps() -> None:
    """The closed form equals the mean over many draws."""
    scores = array([3.0, 2.9, 2.0, 1.95, 1.9, 0.0])
    draw = np.random.default_rng(11).normal(0.0, 0.2, (200_000, 6)) + scores
    swapped = float((draw[:, :3] < draw[:, 1:4]).sum(axis=1).mean())
    assert flips(Curve(scores), 3, 0.2) == pytest.approx(swapped, abs=0.01)


def test_flips_count_the_pair_over_the_boundary() -> None:
    """Equal scores at ranks k and k+1 swap every other time."""
    assert flips(Curve(array([9.0, 5.0, 5.0, 0.0])), 2, 1e-3) == pytest.approx(0.5)
    assert flips(Curve(array([9.0, 5.0, 5.0, 0.0])), 1, 1e-3) == pytest.approx(0.0)


@given(st.lists(st.floats(-10, 10), min_size=2, max_size=20), st.floats(0.001, 1.0), st.floats(1.0, 10.0))
def test_more_noise_never_swaps_less(scores: list[float], noise_sd: float, factor: float) -> None:
    """Flips rise with the noise, from none without it."""
    curve = Curve(array(scores))
    assert flips(curve, 10, 0.0) == 0.0
    assert flips(curve, 10, noise_sd) <= flips(curve, 10, noise_sd * factor) + 1e-12


@pytest.mark.parametrize("noise_sd", [None, math.nan, math.inf, -1.0])
def test_flips_without_a_measured_noise_are_missing(noise_sd: float | None) -> None:
    """Noise that was not measured is not taken for none."""
    assert math.isnan(flips(Curve(array([2.0, 1.0])), 10, noise_sd))


def test_flips_in_huge_scores_do_not_overflow() -> None:
    """Noise that vanishes in the scores' unit swaps nothing but ties."""
    assert flips(Curve(array([1e308, 1e307, 1e307])), 5, 5e-324) == 0.5


def test_near_duplicates_at_the_head_are_alike() -> None:
    """Equal texts but for case and blanks are the same; the greatest of the pairs counts."""
    documents = [
        Text("Return an item within 30 days."),
        Text("Nothing alike"),
        Text("return  an item\nwithin 30 DAYS."),
    ]
    assert duplicate_head(documents) == 1.0


def test_different_documents_are_not_alike() -> None:
    """Without four characters in common the similarity is zero."""
    assert duplicate_head([Text("abcdefgh"), Text("stuvwxyz")]) == 0.0


def test_similarity_is_the_share_of_common_shingles() -> None:
    """Texts abcde and abcdf share one of three; shorter texts are one shingle."""
    assert duplicate_head([Text("abcde"), Text("abcdf")]) == pytest.approx(1 / 3)
    assert duplicate_head([Text("ab"), Text("ab")]) == 1.0


def test_only_the_beginnings_of_the_first_three_are_read() -> None:
    """A fourth document and what lies behind 256 characters do not count."""
    long = "x" * 256
    assert duplicate_head([Text(long + "abc"), Text(long + "xyz")]) == 1.0
    assert duplicate_head([Text("abcdef"), Text("ghijkl"), Text("mnopqr"), Text("abcdef")]) == 0.0


@pytest.mark.parametrize("documents", [[], ["some"], ["some", "  ", ""]])
def test_fewer_than_two_documents_with_text_are_missing(documents: list[str]) -> None:
    """Two blanks are not duplicates."""
    assert math.isnan(duplicate_head([Text(document) for document in documents]))
