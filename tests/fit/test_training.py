"""What is learnt from: the large stage's tops, whole lists and shorter ones, and folds."""

from __future__ import annotations

import numpy as np
import pytest

from cascade.fit.training import TrainingQuery, examples, folds_of, prefix, top_c

_NAN = np.nan


def test_the_top_of_the_large_order_keeps_first_stage_order_in_ties() -> None:
    """The first of equal scores is higher, and what was not scored is in no top."""
    assert top_c(np.array([2.0, _NAN, 3.0, 2.0, 1.0]))[:, :2].tolist() == [
        [False, True],
        [False, False],
        [True, True],
        [False, True],
        [False, False],
    ]
    assert top_c(np.full(4, _NAN)).any() == np.False_


def _query(count: int) -> TrainingQuery:
    return TrainingQuery(np.arange(float(count)), {"bm25": -np.arange(float(count))}, np.arange(float(count)))


def test_examples_are_whole_lists_and_shorter_ones_in_turn() -> None:
    """Queries are cut to 10, 20 and 50 in turn; each cut list has tops of its own."""
    found = examples([_query(60), _query(60), _query(60), _query(5)])
    assert len(found.large) == 60 * 3 + 10 + 20 + 50 + 5 + 5
    assert found.in_top[:, 0].sum() == 8
    cut = slice(60, 70)
    assert found.in_top[cut, 0].tolist() == [False] * 9 + [True]
    assert found.large[cut].tolist() == list(range(10))
    assert found.pair.shape == (len(found.large), 2 * 4 + 2)
    assert found.query.shape == (len(found.large), 2 * 3)


def test_examples_are_pairs_that_both_stages_scored() -> None:
    """A cut list that the large stage scored nothing of is left out."""
    query = _query(12)
    query.small[3] = _NAN
    query.large[:11] = _NAN
    found = examples([query])
    assert (len(found.large), found.large.tolist()) == (1, [11.0])


def test_a_prefix_cuts_every_scorer() -> None:
    """As if the first stage had given so many."""
    cut = prefix(_query(9), 4)
    assert (len(cut.small), len(cut.channels["bm25"]), len(cut.large)) == (4, 4, 4)


@pytest.mark.parametrize(("queries", "folds"), [(10, 5), (11, 5), (100, 3)])
def test_folds_are_even_and_drawn(queries: int, folds: int) -> None:
    """Sizes differ by one at most; the seed decides who is where."""
    fold = folds_of(queries, folds, 0)
    counts = np.bincount(fold, minlength=folds)
    assert counts.max() - counts.min() <= 1
    assert fold.tolist() == folds_of(queries, folds, 0).tolist() != folds_of(queries, folds, 1).tolist()
