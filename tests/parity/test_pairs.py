"""Scores of both sides beside each other."""

from __future__ import annotations

import numpy as np
import pytest

from cascade.parity.pairs import OneSided, paired
from cascade.parity.spaces import Spaces
from cascade.types import ScoreSpace
from tests.parity.arrange import candidate_list

_SAME = Spaces(ScoreSpace.LOGIT, ScoreSpace.LOGIT)


def test_what_only_one_side_scored_is_counted_with_its_first() -> None:
    """And what neither scored; the rest is compared, with its grades and labels."""
    items = [
        candidate_list("a", ["x", "y 1", "z", "w"], grades=(0, 1, 2, -1), ideal=(2, 1)),
        candidate_list("b", ["x"]),
    ]
    ref = {"a": np.array([[1.0, 2.0, np.nan, np.nan]]), "b": np.array([[1.0]])}
    cand = {"a": np.array([[np.nan, 2.5, 3.0, np.nan]]), "b": np.array([[np.nan]])}
    found = paired(items, ref, cand, _SAME)
    assert (found.only_ref, found.only_cand, found.neither) == (
        OneSided(2, ("a", "d0")),
        OneSided(1, ("a", "d2")),
        1,
    )
    assert (found.pairs, len(found.lists)) == (1, 1)
    only = found.lists[0]
    assert (only.error.tolist(), only.grades, only.ideal, only.labels["digits"]) == ([0.5], (1,), (2, 1), ("yes",))


def test_spaces_meet_before_they_are_subtracted_and_orders_stay_raw() -> None:
    """REF answers logits and CAND probabilities."""
    found = paired(
        [candidate_list("a", ["x", "y"])],
        {"a": np.array([[0.0, 50.0]])},
        {"a": np.array([[0.5, 1.0]])},
        Spaces(ScoreSpace.LOGIT, ScoreSpace.PROBABILITY),
    )
    assert found.lists[0].error.tolist() == [0.0, 0.0]
    assert found.lists[0].ref.tolist() == [0.0, 50.0]


def test_one_run_allows_for_no_noise() -> None:
    """The excess is the whole error."""
    found = paired([candidate_list("a", ["x"])], {"a": np.array([[1.0]])}, {"a": np.array([[1.2]])}, _SAME)
    assert found.lists[0].excess.tolist() == pytest.approx([0.2])
    assert (found.noise_ref, found.noise_cand) == (None, None)


def test_noise_over_runs_is_no_excess_and_a_shift_beyond_it_is() -> None:
    """Means over five runs of sd 0.1: nothing exceeds the allowance, in 99 of 100 comparisons; a shift of one does."""
    random = np.random.default_rng(7)
    items = [candidate_list(f"q{number}", ["x"] * 20) for number in range(10)]
    right = {item.id: random.normal(0.0, 3.0, 20) for item in items}
    ref = {name: values[None, :] for name, values in right.items()}
    cand = {name: values + random.normal(0.0, 0.1, (5, 20)) for name, values in right.items()}
    found = paired(items, ref, cand, _SAME)
    assert found.noise_ref is None
    assert found.noise_cand == pytest.approx(0.1, rel=0.1)
    assert max(float(item.excess.max()) for item in found.lists) == 0.0
    assert min(float(np.abs(item.error).max()) for item in found.lists) > 0.05
    cand["q0"] = cand["q0"] + 1.0
    shifted = paired(items, ref, cand, _SAME)
    assert float(shifted.lists[0].excess.min()) > 0.5


def test_spaces_that_do_not_meet_have_no_error() -> None:
    """A cosine and a logit."""
    found = paired(
        [candidate_list("a", ["x", "y"])],
        {"a": np.array([[0.1, 0.2]])},
        {"a": np.array([[1.0, 2.0]])},
        Spaces(ScoreSpace.COSINE, ScoreSpace.LOGIT),
    )
    assert np.isnan(found.lists[0].error).all()
    assert found.pairs == 2
