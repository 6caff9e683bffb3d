"""Read the order that a language model wrote: a permutation of the passages, or what can be mended into one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import orjson

from cascade.stages.answers import AnswerFault, InvalidAnswer

__all__ = ["ReadOrder", "read_order"]

_NUMBER: Final = r"\[[0-9]{1,9}\]"
_BARE: Final = re.compile(rf"{_NUMBER}(?:\s*>\s*{_NUMBER})*")
_CHAIN: Final = re.compile(rf"{_NUMBER}(?:\s*(?:[>,;]\s*)?{_NUMBER})*")
_ARRAY: Final = re.compile(r"\[\s*(?:[0-9]{1,9}\s*,\s*)*[0-9]{1,9}\s*[,\]]")
_DIGITS: Final = re.compile(r"[0-9]+")
_THINKS: Final = "<think>"
_THOUGHT: Final = "</think>"


@dataclass(frozen=True, slots=True)
class ReadOrder:
    """A permutation of the positions of a list, best first, and how much of it had to be mended.

    ``repaired`` counts numbers that were dropped (named before, or of no passage) and passages that were not named, and
    one more where anything stood around the order.
    """

    positions: tuple[int, ...]
    repaired: int = 0


def read_order(text: str, count: int, *, as_json: bool, mends: bool, cut: bool) -> ReadOrder:
    """Return the order of ``count`` passages that an answer names, which are numbered from one.

    What a model thinks before its answer (``<think> … </think>``) is no part of it. ``cut`` tells that the answer was ended
    by its length. With ``mends``, of a number that comes twice the first counts, those of no passage are dropped, and
    passages that are not named follow in the order given. Raises InvalidAnswer: for an answer that names no passage, and
    without ``mends`` for one that is anything but every number once, in the form that was asked for.
    """
    answer = _after_thinking(text)
    numbers, is_bare = _strict(answer, as_json=as_json)
    if not mends:
        _check_whole(numbers if is_bare else _loose(answer), count, is_bare=is_bare, cut=cut)
        return ReadOrder(tuple(number - 1 for number in numbers))
    named = numbers if is_bare else _loose(answer)
    kept = list(dict.fromkeys(number - 1 for number in named if 1 <= number <= count))
    if not kept:
        raise InvalidAnswer(AnswerFault.NO_ORDER)
    there = set(kept)
    behind = [position for position in range(count) if position not in there]
    repaired = len(named) - len(kept) + len(behind) + (not is_bare)
    return ReadOrder((*kept, *behind), repaired)


def _after_thinking(text: str) -> str:
    """Return what follows the model's thinking. Thinking that does not end leaves no answer."""
    answer = text.rpartition(_THOUGHT)[2]
    return "" if _THINKS in answer else answer.strip()


def _strict(answer: str, *, as_json: bool) -> tuple[list[int], bool]:
    """Return the numbers of an answer that is an order and nothing else, and whether it is."""
    if as_json:
        with suppress(orjson.JSONDecodeError):
            array = orjson.loads(answer)
            if isinstance(array, list) and all(type(number) is int for number in array):
                return array, bool(array)
        return [], False
    return (_numbers(answer), True) if _BARE.fullmatch(answer) else ([], False)


def _loose(answer: str) -> list[int]:
    """Return the numbers of the longest order in an answer, the first of equal ones.

    Where no two numbers stand together, as in a list of lines, they are taken in the order of the answer.
    """
    chains = [_numbers(chain) for chain in _CHAIN.findall(answer)]
    arrays = [_numbers(array) for array in _ARRAY.findall(answer)]
    longest = max([*chains, *arrays], key=len, default=[])
    alone = [number for chain in chains for number in chain]
    return alone if len(longest) == 1 and len(alone) > 1 else longest


def _numbers(chain: str) -> list[int]:
    return [int(digits) for digits in _DIGITS.findall(chain)]


def _check_whole(numbers: Sequence[int], count: int, *, is_bare: bool, cut: bool) -> None:
    """Refuse what is not every number from one to ``count`` once and nothing else. Raises InvalidAnswer."""
    if not numbers:
        raise InvalidAnswer(AnswerFault.NO_ORDER)
    if cut:
        raise InvalidAnswer(AnswerFault.CUT_ORDER)
    if not is_bare:
        raise InvalidAnswer(AnswerFault.NOT_BARE)
    if any(not 1 <= number <= count for number in numbers):
        raise InvalidAnswer(AnswerFault.BAD_INDEX)
    if len(set(numbers)) < len(numbers):
        raise InvalidAnswer(AnswerFault.DUPLICATE_INDEX)
    if len(numbers) != count:
        raise InvalidAnswer(AnswerFault.WRONG_COUNT)
