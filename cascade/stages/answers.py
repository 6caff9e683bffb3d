"""Check what an upstream answered before a single score is believed."""

from __future__ import annotations

import math
from collections.abc import Iterable
from contextlib import suppress
from enum import StrEnum
from typing import Any, Final

import orjson

__all__ = ["AnswerFault", "InvalidAnswer", "items_with_scores", "parse_json", "scores_by_index"]

_SENTINEL: Final = -1_000_000.0
"""What llama.cpp answers, with status 200, for a pair that it did not score."""


class AnswerFault(StrEnum):
    """Why an answer does not count."""

    NOT_JSON = "not_json"
    WRONG_SHAPE = "wrong_shape"
    ERROR_BODY = "error_body"
    WRONG_COUNT = "wrong_count"
    BAD_INDEX = "bad_index"
    DUPLICATE_INDEX = "duplicate_index"
    NOT_A_NUMBER = "not_a_number"
    NO_ORDER = "no_order"
    CUT_ORDER = "cut_order"
    NOT_BARE = "not_bare"
    REFUSAL = "refusal"


class InvalidAnswer(Exception):
    """Carry the fault of an answer, and nothing of its content."""

    def __init__(self, fault: AnswerFault) -> None:
        super().__init__(fault.value)
        self.fault = fault


def parse_json(body: bytes) -> Any:
    """Parse a body. Raises InvalidAnswer for what is not JSON; NaN and Infinity are not JSON."""
    with suppress(orjson.JSONDecodeError):
        return orjson.loads(body)
    raise InvalidAnswer(AnswerFault.NOT_JSON)  # outside, since the parser's own error carries the whole body


def items_with_scores(items: object, key: str) -> Iterable[tuple[object, object]]:
    """Yield (index, score) of a list of objects, score under ``key``. Raises InvalidAnswer for another shape."""
    if isinstance(items, dict) and "error" in items:
        raise InvalidAnswer(AnswerFault.ERROR_BODY)
    if not isinstance(items, list):
        raise InvalidAnswer(AnswerFault.WRONG_SHAPE)
    for item in items:
        if not isinstance(item, dict) or "index" not in item or key not in item:
            raise InvalidAnswer(AnswerFault.WRONG_SHAPE)
        yield item["index"], item[key]


def scores_by_index(items: Iterable[tuple[object, object]], count: int) -> list[float]:
    """Return ``count`` scores in index order.

    Raises InvalidAnswer unless every index from 0 to count - 1 is present once as an integer and every
    score is a finite number.
    """
    scores: list[float | None] = [None] * count
    seen = 0
    for index, score in items:
        if type(index) is not int or not 0 <= index < count:
            raise InvalidAnswer(AnswerFault.BAD_INDEX)
        if scores[index] is not None:
            raise InvalidAnswer(AnswerFault.DUPLICATE_INDEX)
        if type(score) not in (int, float) or not math.isfinite(score) or score == _SENTINEL:  # type: ignore[arg-type]
            raise InvalidAnswer(AnswerFault.NOT_A_NUMBER)
        scores[index] = float(score)  # type: ignore[arg-type]
        seen += 1
    if seen != count:
        raise InvalidAnswer(AnswerFault.WRONG_COUNT)
    return [score for score in scores if score is not None]
