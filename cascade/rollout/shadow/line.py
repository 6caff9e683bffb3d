"""Answered requests that wait to be scored beside, bounded in number and in the text that they hold."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from cascade.decision import Decision
from cascade.policy.rollout_rules import ShadowRules
from cascade.rollout.shadow.outcome import ShadowOutcome
from cascade.telemetry.records import Assignment
from cascade.text import Text
from cascade.types import Request

__all__ = ["Line", "Waiting", "bytes_of"]

_CANDIDATE_BYTES: Final = 320
"""What a candidate takes beside its text: the object, its id and its scores."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """An answered request: what it asked, how far its order was answered, and what was decided. ``size`` is in bytes."""

    request: Request
    order: Sequence[int]
    decision: Decision
    assigned: Assignment
    size: int


@dataclass(slots=True)
class Line:
    """First come, first served. ``size`` is that of what waits and of what was taken and has not been let go."""

    rules: ShadowRules
    size: int = 0
    _waiting: deque[Waiting] = field(default_factory=deque)

    def __len__(self) -> int:
        return len(self._waiting)

    def refuses(self, waiting: Waiting, *, free: int) -> ShadowOutcome | None:
        """Tell why there is no place for one more; ``free`` could begin at once."""
        if len(self._waiting) >= self.rules.queue + free:
            return ShadowOutcome.QUEUE_FULL
        return ShadowOutcome.BYTES_FULL if self.size + waiting.size > self.rules.max_bytes else None

    def put(self, waiting: Waiting) -> None:
        """Have it wait."""
        self._waiting.append(waiting)
        self.size += waiting.size

    def take(self) -> Waiting:
        """Return the first in line, which is held until it is let go."""
        return self._waiting.popleft()

    def let_go(self, waiting: Waiting) -> None:
        """Hold it no longer."""
        self.size -= waiting.size


def bytes_of(request: Request) -> int:
    """Return about how many bytes of memory a request keeps alive."""
    texts = (request.query, *(candidate.text for candidate in request.candidates))
    return sum(map(_bytes, texts)) + _CANDIDATE_BYTES * len(request.candidates)


def _bytes(text: Text) -> int:
    return sys.getsizeof(text.reveal())
