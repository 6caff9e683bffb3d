"""One request of an arm, as the room that serves tells of it."""

from __future__ import annotations

from dataclasses import dataclass

from cascade.decision import Decision
from cascade.types import Arm

__all__ = ["Settled"]


@dataclass(frozen=True, slots=True)
class Settled:
    """A request that an arm had. ``decision`` is None where it was not taken for what it is, failed by a fault, or its caller left.

    ``arm`` is the one that it was given to, and ``digest`` of the release that had it then: another release may have that
    arm, or the name, by now. ``answered`` is false where an error left in place of an order. ``queries`` counts those of
    its body. ``states_deadline``: the caller said by when; else the release's budget was its deadline.
    ``unit`` is a number of its unit of traffic, nearly always another for another unit. ``left_after_ms`` is how long a
    caller waited who left, None for all others.
    """

    arm: Arm
    digest: str
    decision: Decision | None
    answered: bool
    queries: int = 1
    states_deadline: bool = False
    unit: int | None = None
    left_after_ms: float | None = None
