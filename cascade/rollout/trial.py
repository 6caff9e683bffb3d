"""A candidate and what judges it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from cascade.guard.deadline import Clock
from cascade.rollout.guardrails.observed import Observed
from cascade.rollout.guardrails.settled import Settled
from cascade.rollout.ports import Closes, Controls, Serving

__all__ = ["Judge", "Rate", "Trial"]

Release = TypeVar("Release", bound=Serving)

_BUCKET_S: Final = 5.0
_BUCKETS: Final = 12


@dataclass(frozen=True, slots=True)
class Judge:
    """What says how far a candidate may go, and what of a request it is told."""

    controller: Controls
    observed: Callable[[Settled], Observed]


@dataclass(slots=True)
class Trial(Generic[Release]):
    """A candidate, what judges it, and what runs beside it for that.

    ``lenient`` tells whether warnings were let pass, ``ticks`` how often its controller was asked in this process.
    """

    candidate: Release
    judge: Judge
    beside: Closes | None = None
    lenient: bool = False
    ticks: int = 0

    @property
    def controller(self) -> Controls:
        """Return what says how far the candidate may go."""
        return self.judge.controller


@dataclass(slots=True)
class Rate:
    """Count requests, and tell how many came a second over the last minute."""

    clock: Clock
    _counts: deque[tuple[int, int]] = field(default_factory=lambda: deque(maxlen=_BUCKETS + 1), init=False)

    def count(self) -> None:
        """Count one request."""
        bucket = int(self.clock() / _BUCKET_S)
        if self._counts and self._counts[-1][0] == bucket:
            self._counts[-1] = (bucket, self._counts[-1][1] + 1)
        else:
            self._counts.append((bucket, 1))

    def per_s(self) -> float:
        """Return requests a second over the last whole minute, or since the first where that is less; 0 for none."""
        now = self.clock() / _BUCKET_S
        seen = [(bucket, count) for bucket, count in self._counts if bucket >= now - _BUCKETS]
        if not seen:
            return 0.0
        return sum(count for _, count in seen) / (max(now - seen[0][0], 0.2) * _BUCKET_S)
