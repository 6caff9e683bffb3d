"""Tell a server that is behind with what it was sent from one that does not answer."""

from __future__ import annotations

import math
from typing import Final, NamedTuple

__all__ = ["Answering", "Leaving"]

_AS_LONG: Final = 2 / 3
"""Others that were answered took as long as a call without an answer has waited, where they took so much of its time."""


class Leaving(NamedTuple):
    """A call as it leaves: its place in the order of leaving, when, and what had been answered by then.

    That is texts, calls, and the seconds that those calls took together.
    """

    number: int
    at: float
    answered_texts: int
    answered_calls: int
    answered_s: float


class Answering:
    """Keep in which order calls leave a server's queue.

    Servers take calls first come, first served, or nearly so. One that scores and is behind answers what left
    earlier; one that hangs answers nobody; one of which a part is gone answers what left later, and soon. Only the first
    is a queue, and of our own making. Behind an address with several replicas each has a queue of its own, so that calls
    are overtaken; what is answered takes long then too. Every step is O(1); times are of the caller's clock, in seconds.
    """

    def __init__(self) -> None:
        self._left = 0
        self._latest_answered = 0
        self._answered_texts = 0
        self._answered_calls = 0
        self._answered_s = 0.0
        self._behind_at = -math.inf

    def leaves(self, at: float) -> Leaving:
        """Count a call that leaves."""
        self._left += 1
        return Leaving(self._left, at, self._answered_texts, self._answered_calls, self._answered_s)

    def answered(self, leaving: Leaving, texts: int, now: float) -> None:
        """Count a call that was answered with the scores of so many texts."""
        self._latest_answered = max(self._latest_answered, leaving.number)
        self._answered_texts += texts
        self._answered_calls += 1
        self._answered_s += now - leaving.at

    def texts_since(self, leaving: Leaving) -> int:
        """Return how many texts of others were answered since a call left."""
        return self._answered_texts - leaving.answered_texts

    def is_queued(self, leaving: Leaving, now: float, own_texts: int = 0) -> bool:
        """Tell whether a call without an answer stands in a queue.

        Others were answered since it left, and all of them had left before it, or it left before the queue was known, or
        they took two thirds as long, in the mean, as it has waited. ``own_texts`` were answered since it left of its own
        round: one call of a round says nothing of the next, since a server that answers the first of each round and never
        the second is no queue.
        """
        if self.texts_since(leaving) <= own_texts:
            return False
        in_turn = self._latest_answered < leaving.number or leaving.at < self._behind_at
        return in_turn or self._mean_s_since(leaving) >= _AS_LONG * (now - leaving.at)

    def fell_behind(self, now: float) -> None:
        """Note that the server has a queue that is too long, and that what leaves from now on is bounded for it."""
        self._behind_at = now

    def _mean_s_since(self, leaving: Leaving) -> float:
        return (self._answered_s - leaving.answered_s) / (self._answered_calls - leaving.answered_calls)
