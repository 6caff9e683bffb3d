"""Spaces of scores."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cascade.cli.parity_pairs import spaces_of
from cascade.parity.sources import source_of
from cascade.parity.spaces import Spaces, logit, sigmoid
from cascade.types import ScoreSpace
from tests.fit.planted import planted_table

_L, _P, _C = ScoreSpace.LOGIT, ScoreSpace.PROBABILITY, ScoreSpace.COSINE


@given(st.floats(-20, 20))
def test_logit_undoes_sigmoid(value: float) -> None:
    """Over logits that float64 keeps well apart from 0 and 1."""
    there = sigmoid(np.array([value]))
    assert there[0] == pytest.approx(1 / (1 + math.exp(-value)), rel=1e-12)
    assert logit(there)[0] == pytest.approx(value, abs=1e-3)


def test_what_has_no_logit_is_not_a_number() -> None:
    """Nought, one, what lies outside, and NaN itself; far logits do not overflow."""
    assert np.isnan(logit(np.array([0.0, 1.0, -0.1, 1.1, np.nan]))).all()
    assert sigmoid(np.array([-1000.0, 1000.0])).tolist() == [0.0, 1.0]


@pytest.mark.parametrize(
    ("ref", "cand", "common", "comparable"),
    [
        (_L, _L, _L, True),
        (_L, _P, _P, True),
        (_P, _L, _P, True),
        (None, _L, _L, True),
        (_P, None, _P, True),
        (None, None, None, True),
        (_C, _L, None, False),
    ],
)
def test_errors_are_told_in_a_space_of_both(
    ref: ScoreSpace | None, cand: ScoreSpace | None, common: ScoreSpace | None, comparable: bool
) -> None:
    """Logits and probabilities meet as probabilities; what is not declared is taken for the other's; others do not meet."""
    spaces = Spaces(ref, cand)
    assert spaces.common is common
    assert (spaces.incomparable is None) is comparable


def test_only_the_logits_of_a_mixed_pair_are_changed() -> None:
    """Probabilities stay as they are, and so do logits beside logits."""
    values = np.array([0.0, 2.0])
    mixed = Spaces(_L, _P)
    assert mixed.in_common(values, _L).tolist() == pytest.approx([0.5, 0.880797])
    assert mixed.in_common(values, _P).tolist() == [0.0, 2.0]
    assert Spaces(_L, _L).in_common(values, _L).tolist() == [0.0, 2.0]


def test_ranks_are_never_subtracted() -> None:
    """Whatever is declared."""
    assert Spaces(None, None, ranks=True).incomparable == "a side holds ranks, not scores"


@pytest.mark.parametrize("asked", [(ScoreSpace.RANK, None), (_P, ScoreSpace.RANK)])
def test_a_column_that_is_declared_as_ranks_is_compared_as_orders(asked: tuple[ScoreSpace, ScoreSpace | None]) -> None:
    """As one whose name says so: of a stage that orders lists there is nothing else to compare."""
    side = source_of("table", planted_table(3, seed=0), "small")
    assert spaces_of(side, side, *asked) == Spaces(None, None, ranks=True)
