"""Jitter: how far a pair's score moves over repeats, with its batch mates, and with its place in the batch."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import numpy as np

from cascade.parity.contrast import long_text
from cascade.parity.contrast_texts import CASES, FILLER, OFF_TOPIC, WINDOW_ANSWER, WINDOW_QUERY
from cascade.parity.lists import FloatArray

__all__ = ["Jitter", "Moved", "Situation", "measure_jitter"]

_REPEATS: Final = 3
_MATES: Final = 3
_OVER: Final = 1.6

Score = Callable[[str, Sequence[str]], Awaitable[FloatArray]]
"""Score documents for a query in one call; NaN for one that is left out."""


class Situation(StrEnum):
    """What differs from a pair that is scored alone."""

    REPEATS = "repeats"
    SHORT_MATES = "short_mates"
    LONG_MATES = "long_mates"
    POSITION = "position"
    MIXED = "mixed"


@dataclass(frozen=True, slots=True)
class Moved:
    """Greatest and mean absolute difference of ``pairs`` scores in one situation, in the side's own units."""

    greatest: float
    mean: float
    pairs: int


@dataclass(frozen=True, slots=True)
class Jitter:
    """How a side's scores move; a situation is missing where a side left out what it would have been judged by.

    ``repeat_sd`` is the standard deviation over three calls of the same, pooled over pairs. Repeats are whole calls,
    alone and mixed; ``position`` compares the first and the last place among the same short mates; ``mixed`` puts
    short and over-length pairs in one call.
    """

    moved: dict[Situation, Moved]
    repeat_sd: float

    @property
    def greatest(self) -> float | None:
        """Return the most that any score moved, None where nothing was measured."""
        return max((found.greatest for found in self.moved.values()), default=None)

    @property
    def is_deterministic(self) -> bool:
        """Tell whether equal calls had equal answers."""
        repeats = self.moved.get(Situation.REPEATS)
        return repeats is None or repeats.greatest == 0.0


async def measure_jitter(score: Score, max_length: int) -> Jitter:
    """Score four pairs, one of them over-length, alone and in company. Raises what ``score`` raises."""
    texts = _probes(max_length)
    alone = np.array([[(await score(WINDOW_QUERY, [text]))[0] for text in texts] for _ in range(_REPEATS)])
    mixed = np.array([await score(WINDOW_QUERY, texts) for _ in range(_REPEATS)])
    by_mates = {}
    for situation, mates in (
        (Situation.SHORT_MATES, [case.good for case in CASES[:_MATES]]),
        (Situation.LONG_MATES, [long_text(OFF_TOPIC, _OVER * max_length)] * _MATES),
    ):
        by_mates[situation] = np.array([(await score(WINDOW_QUERY, [text, *mates]))[0] for text in texts])
    mates = [case.good for case in CASES[:_MATES]]
    last = np.array([(await score(WINDOW_QUERY, [*mates, text]))[-1] for text in texts])
    first = alone[0]
    differences = {
        Situation.REPEATS: np.concatenate([np.ptp(alone, axis=0), np.ptp(mixed, axis=0)]),
        **{situation: values - first for situation, values in by_mates.items()},
        Situation.POSITION: last - by_mates[Situation.SHORT_MATES],
        Situation.MIXED: mixed[0] - first,
    }
    variances = np.concatenate([alone.var(axis=0, ddof=1), mixed.var(axis=0, ddof=1)])
    moved = {situation: found for situation, values in differences.items() if (found := _moved(values)) is not None}
    known = variances[np.isfinite(variances)]
    return Jitter(moved, float(np.sqrt(known.mean())) if known.size else 0.0)


def _probes(max_length: int) -> list[str]:
    return [
        WINDOW_ANSWER,
        "Filters are sold in packs of ten.",
        long_text(FILLER, max_length / 4),
        WINDOW_ANSWER + long_text(FILLER, _OVER * max_length),
    ]


def _moved(differences: FloatArray) -> Moved | None:
    known = np.abs(differences[np.isfinite(differences)])
    return Moved(float(known.max()), float(known.mean()), int(known.size)) if known.size else None
