"""Tell a server that is behind with what it was sent from one that does not answer."""

from __future__ import annotations

import math
from typing import NamedTuple

__all__ = ["Answering", "Leaving"]


class Leaving(NamedTuple):
    """A call as it leaves: its place in the order of leaving, when, and how many texts had been answered by then."""

    number: int
    at: float
    answered_texts: int


class Answering:
    """Keep in which order calls leave a server's queue.

    Servers take calls first come, first served, or nearly so. One that scores and is behind answers what left
    earlier; one that hangs answers nobody; one of which a part is gone answers what left later. Only the first is a
    queue, and of our own making. Every step is O(1); times are of the caller's clock, in seconds.
    """

    def __init__(self) -> None:
        self._left = 0
        self._latest_answered = 0
        self._answered_texts = 0
        self._behind_at = -math.inf

    def leaves(self, at: float) -> Leaving:
        """Count a call that leaves."""
        self._left += 1
        return Leaving(self._left, at, self._answered_texts)

    def answered(self, leaving: Leaving, texts: int) -> None:
        """Count a call that was answered with the scores of so many texts."""
        self._latest_answered = max(self._latest_answered, leaving.number)
        self._answered_texts += texts

    def texts_since(self, leaving: Leaving) -> int:
        """Return how many texts of others were answered since a call left."""
        return self._answered_texts - leaving.answered_texts

    def is_queued(self, leaving: Leaving) -> bool:
        """Tell whether a call without an answer stands in a queue.

        Others were answered since it left, and all of them had left before it, or it left before the queue was known.
        """
        in_turn = self._latest_answered < leaving.number or leaving.at < self._behind_at
        return in_turn and self.texts_since(leaving) > 0

    def fell_behind(self, now: float) -> None:
        """Note that the server has a queue that is too long, and that what leaves from now on is bounded for it."""
        self._behind_at = now
