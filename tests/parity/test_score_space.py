"""Relations between the scores of two sides."""

from __future__ import annotations

import numpy as np
import pytest

from cascade.parity.lists import FloatArray
from cascade.parity.score_space import Relation, check_space
from cascade.parity.spaces import Spaces, logit, sigmoid
from cascade.types import ScoreSpace

_L, _P, _C = ScoreSpace.LOGIT, ScoreSpace.PROBABILITY, ScoreSpace.COSINE
_LOGITS = np.random.default_rng(3).normal(-1.0, 3.0, 400)
_PROBABILITIES = sigmoid(_LOGITS)
_NOISE = np.random.default_rng(4).normal(0.0, 1.0, 400)
_TWICE = "looks like sigmoid(sigmoid(logit))"


@pytest.mark.parametrize(
    ("ref", "cand", "spaces", "relation", "right", "told"),
    [
        (_LOGITS, _LOGITS, Spaces(_L, _L), Relation.SAME, True, ""),
        (_LOGITS, _LOGITS + 0.05 * _NOISE, Spaces(_L, _L), Relation.SAME, True, ""),
        (_LOGITS, _PROBABILITIES, Spaces(_L, _P), Relation.SIGMOID, True, ""),
        (_PROBABILITIES, _LOGITS, Spaces(_P, _L), Relation.LOGIT, True, ""),
        (_PROBABILITIES, sigmoid(_PROBABILITIES), Spaces(_P, _P), Relation.SIGMOID, False, f"CAND {_TWICE}"),
        (_LOGITS, sigmoid(_PROBABILITIES), Spaces(_L, _P), Relation.DOUBLE_SIGMOID, False, f"CAND {_TWICE}"),
        (_LOGITS, sigmoid(_PROBABILITIES), Spaces(_L, _L), Relation.DOUBLE_SIGMOID, False, f"CAND {_TWICE}"),
        (sigmoid(_PROBABILITIES), _PROBABILITIES, Spaces(_P, _P), Relation.LOGIT, False, f"REF {_TWICE}"),
        (sigmoid(_PROBABILITIES), _LOGITS, Spaces(_P, _L), Relation.DOUBLE_LOGIT, False, f"REF {_TWICE}"),
        (_LOGITS, _PROBABILITIES, Spaces(_L, _L), Relation.SIGMOID, False, "REF answers logits and CAND probabilities"),
        (_PROBABILITIES, _LOGITS, Spaces(_L, _L), Relation.LOGIT, False, "REF answers probabilities and CAND logits"),
        (_LOGITS, _LOGITS, Spaces(_L, _P), Relation.SAME, False, "CAND is declared as probability and has scores"),
        (_LOGITS, 2.0 * _LOGITS - 1.0, Spaces(_L, _L), Relation.AFFINE, False, "y = a x + b with a = 2 and b = -1"),
        (_LOGITS, 1.06 * _LOGITS + 0.02 * _NOISE, Spaces(_L, _L), Relation.AFFINE, False, "y = a x + b with a = 1.06"),
        (_LOGITS, -_LOGITS, Spaces(_L, _L), Relation.AFFINE, False, "turns the order round"),
        (_LOGITS, sigmoid(_LOGITS / 3 + 1), Spaces(_L, _P), Relation.AFFINE_SIGMOID, False, "a = 0.3333 and b = 1"),
        (_PROBABILITIES, sigmoid(_LOGITS / 3), Spaces(_P, _P), Relation.AFFINE_LOGIT, False, "a = 0.3333"),
        (_PROBABILITIES, sigmoid(_PROBABILITIES), Spaces(None, None), Relation.SIGMOID, False, f"CAND {_TWICE}"),
    ],
)
def test_the_relation_is_found_and_held_against_what_is_declared(
    ref: FloatArray, cand: FloatArray, spaces: Spaces, relation: Relation, right: bool, told: str
) -> None:
    """A sigmoid too many, a mix-up of spaces and a rescaling are told in words, though no order changes."""
    found = check_space(ref, cand, spaces)
    assert (found.relation, found.right) == (relation, right)
    assert told in " ".join(found.statements)
    assert right or found.statements


def test_a_double_sigmoid_is_seen_through_rounding_and_a_broken_slice() -> None:
    """Half precision, and scores of a twentieth of the pairs that are something else."""
    cand = sigmoid(_PROBABILITIES).astype(np.float16).astype(np.float64)
    cand[:20] = 0.6
    assert check_space(_PROBABILITIES, cand, Spaces(_P, _P)).relation is Relation.SIGMOID


def test_the_same_fault_on_both_sides_is_seen_by_the_range() -> None:
    """Both answer the double sigmoid, so that they agree."""
    both = sigmoid(_PROBABILITIES)
    found = check_space(both, both, Spaces(_P, _P))
    assert (found.relation, found.right) == (Relation.SAME, False)
    assert [statement.split()[0] for statement in found.statements] == ["REF", "CAND"]


def test_cosines_between_a_half_and_three_quarters_are_no_double_sigmoid() -> None:
    """Many bi-encoders answer no others; but a cosine above one is none."""
    cosines = 0.5 + 0.2 * _PROBABILITIES
    assert check_space(cosines, cosines, Spaces(_C, _C)).right is True
    assert check_space(cosines * 2, cosines * 2, Spaces(_C, _C)).right is False


@pytest.mark.parametrize(
    ("ref", "cand", "told"),
    [
        (_LOGITS, _NOISE, "no known function"),
        (_LOGITS[:5], _LOGITS[:5], "fewer than 10 pairs"),
        (_LOGITS, np.full(400, 0.5), "CAND scores everything alike"),
        (np.full(400, 0.5), _LOGITS, "REF scores everything alike"),
    ],
)
def test_what_cannot_be_told_is_neither_right_nor_wrong(ref: FloatArray, cand: FloatArray, told: str) -> None:
    """Another model, too few pairs, or a constant: with the reason."""
    found = check_space(ref, cand, Spaces(_L, _L))
    assert found.right is None
    assert told in found.statements[-1]


def test_ranks_are_not_looked_at() -> None:
    """They have no space."""
    found = check_space(_LOGITS, _LOGITS, Spaces(None, None, ranks=True))
    assert (found.relation, found.right, found.statements) == (None, None, ())


def test_scores_that_are_all_saturated_have_no_logit() -> None:
    """A relation is not tried where a tenth of the scores is not in its domain."""
    saturated = np.where(_LOGITS > 0, 1.0, 0.0)
    found = check_space(saturated, saturated, Spaces(_P, _P))
    assert (found.relation, found.right) == (Relation.SAME, True)
    assert Relation.LOGIT not in found.fits
    assert np.isnan(logit(saturated)).all()
