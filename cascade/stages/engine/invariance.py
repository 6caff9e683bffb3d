"""Measure whether a model scores a pair the same whatever it is batched with."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final

from cascade.stages.engine.tokens import Tokens

__all__ = ["PROBES", "PROBE_QUERY", "TOLERANCE", "batch_effect"]

TOLERANCE: Final = 1e-4
"""Largest move of a raw score that counts as none: float32 sums in another order move by 1e-6 to 1e-5."""
PROBE_QUERY: Final = "How is a lighthouse kept?"
PROBES: Final = (
    "A lighthouse.",
    "The keeper trims the lamp at dusk and writes the hour in the log, as every evening.",
    "灯台の番人が毎晩灯りをともす。",
    "Lighthouse keepers clean the lens, wind the clockwork, and watch the light through the night. " * 3,
    "Bread dough rises faster in a warm room. " * 8,
)
_MATES: Final = 7


def batch_effect(run: Callable[[Sequence[Tokens]], Sequence[float]], pairs: Sequence[Tokens]) -> float:
    """Return the most that a pair's raw score moves, against a call of its own, in batches of many kinds.

    With mates of every length before and behind it, so padded or not; at every place; among copies of itself; and beside
    many that are longest or shortest. ``run`` gives one raw score an input.
    """
    alone = [run([pair])[0] for pair in pairs]
    by_length = sorted(range(len(pairs)), key=lambda number: len(pairs[number]))
    everyone = list(range(len(pairs)))
    turned = [everyone[place:] + everyone[:place] for place in everyone]
    shortest, longest = by_length[0], by_length[-1]
    batches = [
        *turned,
        everyone[::-1],
        *([number] * 3 for number in everyone),
        *([number, *[longest] * _MATES] for number in by_length[:2]),
        *([*[shortest] * _MATES, number] for number in by_length[-2:]),
    ]
    moves = [
        abs(score - alone[number])
        for batch in batches
        for number, score in zip(batch, run([pairs[number] for number in batch]), strict=True)
    ]
    return max(math.inf if math.isnan(move) else move for move in moves)
