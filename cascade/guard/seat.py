"""What admission reads of a request, and the place that it has there."""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass

from cascade.guard.quota import Quota
from cascade.types import Lane, Verdict

__all__ = ["Asked", "Bounds", "Seat"]


@dataclass(frozen=True, slots=True)
class Bounds:
    """How many requests may be under way and wait.

    Of ``most`` seats long requests, those of ``long_cost`` or more, have ``most_long`` at most; those seats are
    theirs first. ``most_waiting`` bounds the short lane, the same share of it as of the seats the long one.
    """

    most: int
    most_waiting: int
    most_long: int
    long_cost: float

    def waiting(self, lane: Lane) -> int:
        """Return how many may wait in a lane."""
        return self.most_waiting if lane is Lane.SHORT else math.ceil(self.most_waiting * self.most_long / self.most)


@dataclass(frozen=True, slots=True)
class Asked:
    """What is read of a request: whose it is, its class (0 first), what it costs, and ``until`` when it must begin.

    ``queries`` is what its tenant's quota is charged: a body may have more than one. ``seats`` is how many it takes.
    """

    tenant: str | None
    priority: int
    cost: float
    until: float
    queries: int = 1
    seats: int = 1


@dataclass(slots=True, eq=False)
class Seat:
    """One request's place: taken, waited for (no verdict yet), or not to be had.

    ``since`` is when it came, and once settled when that was. ``takes`` is how many seats it holds or waits for.
    ``flow`` and ``key`` are its place in the queue.
    """

    asked: Asked
    lane: Lane
    since: float
    takes: int = 1
    quota: Quota | None = None
    verdict: Verdict | None = None
    flow: str | None = None
    key: tuple[int, float, int] = (0, 0.0, 0)
    turn: asyncio.Future[None] | None = None
    timer: asyncio.TimerHandle | None = None

    @property
    def is_held(self) -> bool:
        """Tell whether the request may ask its stages."""
        return self.verdict is Verdict.ADMITTED or self.verdict is Verdict.WAITED

    async def settled(self) -> bool:
        """Wait until it is settled whether the request may ask its stages; tell whether it may."""
        if self.turn is not None:
            await self.turn
        return self.is_held
