"""Errors, correlation, tau, overlap, ties and slices."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import kendalltau

from cascade.parity.agreement import agreement, kendall, part_of, top
from tests.parity.arrange import paired_list


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=2, max_size=12))
def test_tau_is_tau_b(scores: list[tuple[int, int]]) -> None:
    """Against scipy's, ties included, where both sides vary."""
    ref, cand = (np.array(side, dtype=np.float64) for side in zip(*scores, strict=True))
    found = kendall(ref, cand)
    if np.ptp(ref) and np.ptp(cand):
        assert found == pytest.approx(float(kendalltau(ref, cand).statistic))
    else:
        assert found == (None if not np.ptp(ref) and not np.ptp(cand) else 0.0)


def test_a_single_candidate_has_no_tau() -> None:
    """There is no order."""
    assert kendall(np.array([1.0]), np.array([2.0])) is None


def test_ties_keep_first_stage_order() -> None:
    """Where scores are equal the earlier candidate is on top."""
    assert top(np.array([1.0, 2.0, 1.0, 1.0]), 2) == {0, 1}


def test_figures_are_over_all_pairs_and_spreads_over_queries() -> None:
    """One query agrees, one is turned round and is off by two."""
    lists = [paired_list([3, 2, 1], [3, 2, 1], "a"), paired_list([3, 2, 1], [1, 2, 3], "b")]
    found = agreement(lists, k=1)
    assert (found.queries, found.pairs) == (2, 6)
    assert found.max_error == 2.0
    assert found.mean_error == pytest.approx(4 / 6)
    assert found.pearson == pytest.approx(0.0)
    assert found.kendall is not None
    assert (found.kendall.mean, found.kendall.least, found.kendall.queries) == (0.0, -1.0, 2)
    assert found.overlap is not None
    assert (found.overlap.mean, found.overlap.least) == (0.5, 0.0)


def test_overlap_says_nothing_of_queries_within_the_cut_off() -> None:
    """With k candidates or fewer the top k is all of them; such queries do not count."""
    lists = [paired_list([3, 2, 1], [1, 2, 3]), paired_list([4, 3, 2, 1], [4, 1, 2, 3])]
    found = agreement(lists, k=3)
    assert found.overlap is not None
    assert found.overlap.mean == pytest.approx(2 / 3)
    assert found.overlap.queries == 1
    assert agreement(lists, k=4).overlap is None


def test_saturated_scores_show_as_ties() -> None:
    """The share of a query's comparisons that a side does not decide."""
    found = agreement([paired_list([4, 3, 2, 1], [1, 1, 1, 0])], k=1)
    assert (found.tied_ref, found.tied_cand) == (0.0, 0.5)


def test_scores_that_cannot_be_subtracted_have_no_error() -> None:
    """Orders are still compared."""
    nowhere = np.full(2, np.nan)
    found = agreement([paired_list([2, 1], [2, 1], ref_common=nowhere, cand_common=nowhere, excess=nowhere)], k=1)
    assert (found.max_error, found.max_excess, found.mean_error, found.mean_excess, found.pearson) == (None,) * 5
    assert found.kendall is not None
    assert found.kendall.mean == 1.0


def test_nothing_has_no_figure() -> None:
    """Neither errors nor spreads; two pairs have no correlation."""
    found = agreement([], k=1)
    assert (found.pairs, found.max_error, found.kendall, found.overlap, found.tied_ref) == (0, None, None, None, None)
    assert agreement([paired_list([2, 1], [2, 1])], k=1).pearson is None


def test_a_slice_is_whole_only_where_it_is_of_queries() -> None:
    """By a label of the query its lists are there as they are; by one of the document they are cut."""
    lists = [
        paired_list([2, 1], [2, 1], "a", labels={"script": ("latin", "latin"), "digits": ("yes", "no")}),
        paired_list([2, 1], [2, 1], "b", labels={"script": ("han", "han"), "digits": ("no", "no")}),
    ]
    of_query, whole = part_of(lists, "script", "latin")
    assert ([item.id for item in of_query], whole) == (["a"], True)
    of_documents, whole = part_of(lists, "digits", "no")
    assert ([(item.id, item.ref.tolist()) for item in of_documents], whole) == (
        [("a", [1.0]), ("b", [2.0, 1.0])],
        False,
    )
    assert part_of(lists, "script", "greek") == ([], True)
