"""Put a load on what scores: closed, to see how much it does, and open, to see how much of it is in time."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass

from cascade.errors import ConfigError, StageError, StageTimeout
from cascade.guard.deadline import Clock, Deadline
from cascade.tuning.texts import WrittenRequest

__all__ = ["Arrival", "Score", "arrivals", "closed_loop", "open_loop"]

Score = Callable[[WrittenRequest, Deadline], Awaitable[object]]
"""Score a request. Raises StageError where it is not scored by its deadline."""

_PATIENCE_MS = 120_000.0
"""A request without a deadline of its own must be scored in this time."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """A request that comes ``at`` seconds after the beginning."""

    at: float
    request: WrittenRequest


def arrivals(rate: float, seconds: float, seed: int) -> list[float]:
    """Draw the times of a Poisson process of ``rate`` a second within so many seconds; at least one."""
    draw = random.Random(seed)  # noqa: S311  # nosec B311 # a load, not a secret
    times = [min(draw.expovariate(rate), seconds)]
    while (following := times[-1] + draw.expovariate(rate)) < seconds:
        times.append(following)
    return times


async def closed_loop(
    score: Score, requests: Iterator[WrittenRequest], *, concurrent: int, seconds: float, clock: Clock
) -> float:
    """Keep ``concurrent`` requests under way for so many seconds and to their end; return pairs scored a second.

    Each of the ``concurrent`` has at least one. Raises ConfigError where one is not scored at all.
    """
    began = clock()
    pairs = 0

    async def one() -> None:
        nonlocal pairs
        while True:
            request = next(requests)
            try:
                await score(request, Deadline.after_ms(_PATIENCE_MS, clock))
            except StageError as error:
                raise ConfigError(_unscored(request, error)) from None
            pairs += len(request.documents)
            if clock() - began >= seconds:
                return

    try:
        async with (
            asyncio.TaskGroup() as group
        ):  # what fails leaves nothing behind that the next trial would be slowed by
            for _ in range(concurrent):
                group.create_task(one())
    except ExceptionGroup as failed:
        raise failed.exceptions[0] from None
    return pairs / max(clock() - began, 1e-9)


def _unscored(request: WrittenRequest, error: StageError) -> str:
    count = len(request.documents)
    if isinstance(error, StageTimeout):
        return f"{count} candidates are not scored in {_PATIENCE_MS / 1000:g} s: give fewer --candidates"
    return f"{count} candidates are not scored: {error.code}"


async def open_loop(
    score: Score, coming: Sequence[Arrival], *, deadline_ms: float, max_in_flight: int, seconds: float, clock: Clock
) -> float:
    """Let requests come whether or not others are done; return those answered by their deadline for each second.

    At most ``max_in_flight`` are scored at a time, the rest wait in the order that they came.
    """
    began, in_time = clock(), 0
    seats = asyncio.Semaphore(max_in_flight)

    async def one(arrival: Arrival) -> None:
        nonlocal in_time
        await asyncio.sleep(max(0.0, began + arrival.at - clock()))
        deadline = Deadline(began + arrival.at + deadline_ms / 1000.0, clock)
        try:
            async with deadline.timeout(), seats:
                await score(arrival.request, deadline)
        except (StageError, TimeoutError):
            return
        in_time += deadline.remaining_ms() > 0

    await asyncio.gather(*map(one, coming))
    return in_time / seconds
