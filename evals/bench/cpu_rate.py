"""The highest rate at which answers are in time and undegraded, and what an answer costs at it."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

__all__ = ["Probed", "breakeven_rate", "cost_of_1000", "highest_rate"]


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
    Raises ValueError for ends that do not ascend.
    """
    if not 0 < low < high:
        raise ValueError("rates must be above 0, the low one below the high one")
    probes = [await probe(high)]
    while probes[-1].holds:
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


def cost_of_1000(price_per_hour: float, rate: float) -> float:
    """Return what 1,000 queries cost on a machine of this price that answers so many a second all the time."""
    return price_per_hour * 1000 / (3600 * rate)


def breakeven_rate(price_per_hour: float, rate: float, other_price_per_hour: float) -> float:
    """Return the queries a second that a machine of another price must answer to cost no more a query."""
    return rate * other_price_per_hour / price_per_hour
