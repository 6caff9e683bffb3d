"""Metrics expected over ties, against the mean over every order that the ties allow."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from cascade.metrics import (
    hit_over_ties,
    hit_rows,
    ideal_dcg,
    ndcg_over_ties,
    ndcg_rows,
    recall_over_ties,
    recall_rows,
    reciprocal_rank_over_ties,
    reciprocal_rank_rows,
)

_RUNS = st.lists(st.tuples(st.sampled_from((0.0, 0.5, 1.0)), st.integers(0, 2)), max_size=6)


def _mean(scores: NDArray[np.float64], measure: Callable[[NDArray[np.intp]], NDArray[np.float64]]) -> float:
    """Return the mean of a metric over all orders in which scores do not rise."""
    orders = [order for order in permutations(range(scores.size)) if (np.diff(scores[list(order)]) <= 0).all()]
    return float(measure(np.array(orders, dtype=np.intp).reshape(len(orders), scores.size)).mean())


@settings(max_examples=60)
@given(_RUNS, st.integers(0, 7))
def test_closed_forms_are_the_mean_over_all_orders(run: list[tuple[float, int]], k: int) -> None:
    """Each metric equals its mean over every way to settle the ties."""
    scores = np.array([score for score, _ in run])
    gains = np.array([float(grade) for _, grade in run])
    relevant, ideal, total = gains > 0, ideal_dcg(gains, k), int((gains > 0).sum())
    assert ndcg_over_ties(scores, gains, ideal, k) == pytest.approx(
        _mean(scores, lambda orders: ndcg_rows(gains[orders], ideal, k))
    )
    assert recall_over_ties(scores, relevant, total, k) == pytest.approx(
        _mean(scores, lambda orders: recall_rows(relevant[orders], total, k))
    )
    assert hit_over_ties(scores, relevant, k) == pytest.approx(
        _mean(scores, lambda orders: hit_rows(relevant[orders], k))
    )
    for cut in (k, None):
        assert reciprocal_rank_over_ties(scores, relevant, cut) == pytest.approx(
            _mean(scores, lambda orders, cut=cut: reciprocal_rank_rows(relevant[orders], cut))  # type: ignore[misc]
        )


def test_one_relevant_of_two_tied_first_is_found_at_rank_one_or_two() -> None:
    """The expected reciprocal rank is the mean of 1 and 1/2; the top place holds it half the time."""
    scores, relevant = np.array([1.0, 1.0, 0.0]), np.array([True, False, False])
    assert reciprocal_rank_over_ties(scores, relevant) == 0.75
    assert hit_over_ties(scores, relevant, 1) == 0.5
    assert recall_over_ties(scores, relevant, 1, 1) == 0.5


def test_without_a_relevant_document_everything_is_nought() -> None:
    """Nothing is found among ties either, nor in an empty run."""
    for scores in (np.ones(3), np.ones(0)):
        nothing = np.zeros(scores.size, dtype=np.bool_)
        for ideal, total in ((0.0, 0), (1.0, 1)):
            assert ndcg_over_ties(scores, np.zeros(scores.size), ideal, 3) == 0.0
            assert recall_over_ties(scores, nothing, total, 3) == 0.0
        assert reciprocal_rank_over_ties(scores, nothing) == 0.0
        assert hit_over_ties(scores, nothing, 3) == 0.0
