"""What queries cost in time and money, from the work that a policy gives the stages."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from cascade.replay.columns import FloatArray

__all__ = ["STAGES", "BreakEven", "Device", "Terms", "Work", "break_even", "busy_ms", "cost", "in_time", "latency_ms"]

STAGES: Final = ("small", "large")
_MS_AN_HOUR: Final = 3_600_000.0
_ROUNDING: Final = 1e-9


@dataclass(frozen=True, slots=True)
class Device:
    """What a large stage may run on: milliseconds of a pair, and the price of an instance for an hour."""

    name: str
    ms_per_pair: float
    price_per_hour: float


@dataclass(frozen=True, slots=True)
class Terms:
    """What an operator says of time and money. Prices are in a currency of the operator's.

    ``ms_per_pair`` by stage stands in for what the table measured. ``ms_per_call`` is what a call takes beside
    its pairs: it delays an answer and keeps no device busy. ``utilisation`` is the share of the time paid for in
    which a device is busy. ``deadline_ms`` None is not told.
    """

    ms_per_pair: Mapping[str, float] = field(default_factory=dict)
    ms_per_call: float = 0.0
    deadline_ms: float | None = None
    price_per_hour: Mapping[str, float] = field(default_factory=dict)
    utilisation: float = 0.6
    devices: tuple[Device, ...] = ()

    def on(self, device: Device) -> Terms:
        """Return the terms with the large stage on a device."""
        return replace(
            self,
            ms_per_pair={**self.ms_per_pair, "large": device.ms_per_pair},
            price_per_hour={**self.price_per_hour, "large": device.price_per_hour},
        )


@dataclass(frozen=True, slots=True)
class Work:
    """What each query (Q,) gives the stages: pairs and calls by stage.

    ``measured_ms`` is the sum over its pairs of what the table measured, NaN where it does not tell all of them.
    """

    pairs: Mapping[str, NDArray[np.integer]]
    calls: Mapping[str, NDArray[np.integer]]
    measured_ms: Mapping[str, FloatArray]


def busy_ms(work: Work, terms: Terms, stage: str) -> FloatArray:
    """Return for how long each query (Q,) keeps a stage's device busy; NaN where that is not told."""
    if stage in terms.ms_per_pair:
        return np.asarray(work.pairs[stage] * terms.ms_per_pair[stage], dtype=np.float64)
    return np.where(work.pairs[stage] > 0, work.measured_ms[stage], 0.0)


def latency_ms(work: Work, terms: Terms) -> FloatArray:
    """Return how long each query (Q,) takes where none waits for another: rounds one after the other, no queue."""
    each = [busy_ms(work, terms, stage) + work.calls[stage] * terms.ms_per_call for stage in STAGES]
    return np.asarray(np.sum(each, axis=0))


def in_time(work: Work, terms: Terms) -> FloatArray:
    """Return 1 for each query (Q,) that is answered within the deadline, else 0; NaN where that is not told."""
    taken = latency_ms(work, terms)
    deadline = math.nan if terms.deadline_ms is None else terms.deadline_ms
    return np.where(np.isnan(taken) | math.isnan(deadline), np.nan, taken <= deadline)


def cost(work: Work, terms: Terms) -> FloatArray:
    """Return what each query (Q,) costs: busy hours x price / utilisation, over the stages; NaN where not told.

    A stage that has nothing to do needs no price.
    """
    spent = np.zeros(len(work.pairs["small"]))
    for stage in STAGES:
        busy = busy_ms(work, terms, stage)
        price = terms.price_per_hour.get(stage, math.nan)
        spent = spent + np.where(work.pairs[stage] > 0, busy / _MS_AN_HOUR * price / terms.utilisation, 0.0)
    return spent


@dataclass(frozen=True, slots=True)
class BreakEven:
    """When a fast device costs as much as a slow one.

    ``price`` is the hourly price of the fast one at which a pair costs the same on both, when both are kept as busy
    as the utilisation says: its speed-up times the slow one's price. ``pairs_per_hour`` is the load above which one
    instance of the fast one costs no more than the whole number of slow ones that carry it; None where one
    instance of the fast one is full before that. ``per_million`` is what a million pairs cost on each.
    """

    slow: Device
    fast: Device
    speed_up: float
    price: float
    pairs_per_hour: float | None
    per_million: Mapping[str, float]
    cheaper: str


def break_even(one: Device, other: Device, utilisation: float) -> BreakEven:
    """Return when two devices cost the same, at whole instances and at full ones.

    An instance carries c = utilisation x 3.6e6 / ms pairs an hour. With r = price_fast / price_slow, ceil(r) slow
    instances cost no less than one fast one, and a load needs as many from above (ceil(r) - 1) x c_slow on. That
    is the break-even, where one fast instance carries more than that. A price of 0 is never beaten.
    """
    fast, slow = sorted((one, other), key=lambda device: device.ms_per_pair)
    speed_up = slow.ms_per_pair / fast.ms_per_pair
    pair = {
        device.name: device.ms_per_pair / _MS_AN_HOUR / utilisation * device.price_per_hour for device in (slow, fast)
    }
    return BreakEven(
        slow=slow,
        fast=fast,
        speed_up=speed_up,
        price=slow.price_per_hour * speed_up,
        pairs_per_hour=_least_load(slow, fast, utilisation),
        per_million={name: each * 1e6 for name, each in pair.items()},
        cheaper=min(pair, key=lambda name: pair[name]) if pair[slow.name] != pair[fast.name] else "equal",
    )


def _least_load(slow: Device, fast: Device, utilisation: float) -> float | None:
    carries_slow, carries_fast = (utilisation * _MS_AN_HOUR / device.ms_per_pair for device in (slow, fast))
    if fast.price_per_hour <= slow.price_per_hour:
        return 0.0
    if not slow.price_per_hour:
        return None
    as_dear = math.ceil(fast.price_per_hour / slow.price_per_hour - _ROUNDING)
    load = (as_dear - 1) * carries_slow
    return load if load < carries_fast else None
