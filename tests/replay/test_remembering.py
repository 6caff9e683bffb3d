"""A calibration that many prices ask about one query."""

from __future__ import annotations

from typing import Any

import numpy as np

from cascade.calibration.calibrated import Calibration, Estimate
from cascade.replay.columns import FloatArray
from cascade.replay.remembering import Remembering
from tests.replay.made import made_queries
from tests.replay.made_calibration import made_artefact

_QUERY = made_queries(1)[0]


class _Counting(Calibration):
    """A calibration that counts how often it is asked."""

    def __init__(self) -> None:
        super().__init__(made_artefact(second=True), "sha256:" + "0" * 64)
        self.asked: list[str] = []

    def misfit(self, *arguments: Any) -> str | None:
        self.asked.append("misfit")
        return super().misfit(*arguments)

    def estimate(self, *arguments: Any) -> Estimate:
        self.asked.append("estimate")
        return super().estimate(*arguments)

    def estimate_again(self, *arguments: Any) -> FloatArray:
        self.asked.append("estimate_again")
        return super().estimate_again(*arguments)

    def value(self, p: FloatArray, k: int | None = None) -> FloatArray:
        self.asked.append("value")
        return super().value(p, k)

    def summary(self, *arguments: Any) -> Any:
        self.asked.append("summary")
        return super().summary(*arguments)


def test_each_question_is_answered_once_and_as_the_calibration_does() -> None:
    """Asked three times over, each answer is the calibration's own, and it was worked out once."""
    plain, asked = _Counting(), _Counting()
    remembering = Remembering(asked)
    large = np.where(np.arange(20) < 4, _QUERY.large, np.nan)
    order = np.argsort(-_QUERY.small)
    for _ in range(3):
        assert remembering.misfit(_QUERY.small, _QUERY.channels) is None
        first = remembering.estimate(_QUERY.small, _QUERY.channels)
        again = remembering.estimate_again(first, large, 5)
        assert np.array_equal(first.p, plain.estimate(_QUERY.small, _QUERY.channels).p)
        assert np.array_equal(again, plain.estimate_again(first, large, 5))
        assert np.array_equal(remembering.value(again, 5), plain.value(again, 5))
        assert remembering.summary(first.p, order, 5) == plain.summary(first.p, order, 5)
    assert asked.asked == ["misfit", "estimate", "estimate_again", "value", "summary"]


def test_another_set_of_scores_or_cutoff_is_another_question() -> None:
    """What was seen decides the second estimate, and k decides a value."""
    asked = _Counting()
    remembering = Remembering(asked)
    first = remembering.estimate(_QUERY.small, _QUERY.channels)
    one, other = (np.where(np.arange(20) < count, _QUERY.large, np.nan) for count in (3, 6))
    assert not np.array_equal(remembering.estimate_again(first, one, 5), remembering.estimate_again(first, other, 5))
    assert not np.array_equal(remembering.value(first.p, 5), remembering.value(first.p, 1))
    assert asked.asked == ["estimate", "estimate_again", "estimate_again", "value", "value"]


def test_a_misfit_is_remembered_with_its_reason() -> None:
    """Of a list that is too short: twice the same words, worked out once."""
    asked = _Counting()
    remembering = Remembering(asked)
    short = _QUERY.small[:1]
    reasons = {remembering.misfit(short, {}), remembering.misfit(short, {})}
    assert (reasons, asked.asked) == ({"candidates_out_of_range"}, ["misfit"])
