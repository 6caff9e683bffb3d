"""Whether scores move with the batch is measured, in batches of many kinds."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import pytest

from cascade.stages.engine.invariance import TOLERANCE, batch_effect
from cascade.stages.engine.tokens import Tokens

from .arrange import tokens_of

_PAIRS = [tokens_of("ab"), tokens_of("cdefg"), tokens_of("hijklmnopqrst")]

Run = Callable[[Sequence[Tokens]], list[float]]


def _own(each: Tokens) -> float:
    return float(each.ids.sum()) / 1000


def _steady(inputs: Sequence[Tokens]) -> list[float]:
    return [_own(each) for each in inputs]


def _by_padding(inputs: Sequence[Tokens]) -> list[float]:
    longest = max(map(len, inputs))
    return [_own(each) + 0.01 * (longest - len(each)) for each in inputs]


def _by_place(inputs: Sequence[Tokens]) -> list[float]:
    return [_own(each) + 0.01 * place for place, each in enumerate(inputs)]


def _by_count(inputs: Sequence[Tokens]) -> list[float]:
    return [_own(each) + (0.01 if len(inputs) > 6 else 0.0) for each in inputs]


def _by_mates(inputs: Sequence[Tokens]) -> list[float]:
    greatest = max(int(each.ids.max()) for each in inputs)
    return [_own(each) + 1e-3 * (greatest - int(each.ids.max())) for each in inputs]


def _by_copies(inputs: Sequence[Tokens]) -> list[float]:
    same = len({each.ids.tobytes() for each in inputs}) == 1 and len(inputs) == 3
    return [_own(each) + 0.01 * same for each in inputs]


def _lost(inputs: Sequence[Tokens]) -> list[float]:
    return [_own(each) if len(inputs) == 1 else math.nan for each in inputs]


@pytest.mark.parametrize("run", [_by_padding, _by_place, _by_count, _by_mates, _by_copies, _lost])
def test_every_way_of_moving_is_found(run: Run) -> None:
    """By padding, place, number of mates, what they are, copies, or as no number at all."""
    assert batch_effect(run, _PAIRS) > 10 * TOLERANCE * 0.99


def test_a_model_that_stays_is_found_to_stay() -> None:
    """Rounding of the size that sums in another order have is within the tolerance."""

    def rounding(inputs: Sequence[Tokens]) -> list[float]:
        return [_own(each) + 1e-6 * len(inputs) for each in inputs]

    assert batch_effect(_steady, _PAIRS) == 0
    assert 0 < batch_effect(rounding, _PAIRS) < TOLERANCE
