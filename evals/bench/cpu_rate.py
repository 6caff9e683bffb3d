"""The highest rate at which answers are in time and undegraded, and what an answer costs at it."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

__all__ = ["Probed", "breakeven_rate", "confirmed", "cost_of_1000", "highest_rate", "requests_of_probe"]


_MOST_RAISED: Final = 20
"""Times that the high end is raised: to 3,000 times what it was."""
_FEWEST: Final = 20
"""Requests of a probe at the least, however long they take."""
_DEADLINES: Final = 5
"""How long a probe is at the least: in a deadline or two no queue grows so long that it is seen."""


@dataclass(frozen=True, slots=True)
class Probed:
    """What a rate came to. ``good`` of ``requests`` were in time and undegraded; it may have ended before all were sent."""

    rate: float
    requests: int
    good: int
    late: int
    degraded: int
    failed: int
    p50_ms: float
    p95_ms: float
    holds: bool


async def highest_rate(
    probe: Callable[[float], Awaitable[Probed]], low: float, high: float, steps: int
) -> tuple[float | None, list[Probed]]:
    """Return the highest rate that was probed and held, and every probe; None where none held.

    The high end is probed first, as too high a rate is found out soonest; while it holds it is raised by a half. Then
    ``steps`` times the geometric mean of what holds and what does not: what is left between them is their ratio to the
    power of 2^-steps. The low end, the slowest to probe, is taken to hold and is probed last, where nothing else held.
    Raises ValueError for ends that do not ascend, and where there is no end of what holds.
    """
    if not 0 < low < high:
        raise ValueError("rates must be above 0, the low one below the high one")
    probes = [await probe(high)]
    while probes[-1].holds:
        if len(probes) > _MOST_RAISED:
            raise ValueError("every rate holds: no number of requests that is sent is too many")
        low, high = high, high * 1.5
        probes.append(await probe(high))
    for _ in range(steps):
        middle = math.sqrt(low * high)
        probes.append(await probe(middle))
        if probes[-1].holds:
            low = middle
        else:
            high = middle
    if not any(each.holds for each in probes):
        last = await probe(low)
        return (low if last.holds else None), [*probes, last]
    return low, probes


async def confirmed(
    probe: Callable[[float], Awaitable[Probed]], rate: float, tries: int
) -> tuple[float | None, list[Probed]]:
    """Return the rate, lowered by a twentieth until it holds once more, and every probe; None where it never does."""
    probes: list[Probed] = []
    for _ in range(tries):
        probes.append(await probe(rate))
        if probes[-1].holds:
            return rate, probes
        rate *= 0.95
    return None, probes


def requests_of_probe(rate: float, *, most: int, seconds: float, deadline_ms: float) -> int:
    """Return how many requests are sent at a rate: ``most``, or those of so many seconds, and never too few to tell."""
    told = max(_FEWEST, math.ceil(_DEADLINES * rate * deadline_ms / 1000))
    return max(told, min(most, round(rate * seconds)))


def cost_of_1000(price_per_hour: float, rate: float) -> float:
    """Return what 1,000 queries cost on a machine of this price that answers so many a second all the time."""
    return price_per_hour * 1000 / (3600 * rate)


def breakeven_rate(price_per_hour: float, rate: float, other_price_per_hour: float) -> float:
    """Return the queries a second that a machine of another price must answer to cost no more a query."""
    return rate * other_price_per_hour / price_per_hour
