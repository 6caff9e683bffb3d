"""What the guards of a stage tell as they act, and how they stand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from cascade.types import BreakerState, RetryOutcome

__all__ = ["GuardEvents", "Guarded"]


def _nobody(told: Any) -> None:
    """Take notice of nothing."""


@dataclass(frozen=True, slots=True)
class GuardEvents:
    """Callbacks, each cheap and never failing: what became of a retry, and the breaker's new state."""

    retried: Callable[[RetryOutcome], None] = _nobody
    breaker: Callable[[BreakerState], None] = _nobody


@dataclass(frozen=True, slots=True)
class Guarded:
    """What is let through to a server now: the breaker, the limits, and what is under way and waits for room."""

    breaker: BreakerState
    limit_texts: int
    limit_tokens: int
    in_flight_texts: int
    in_flight_tokens: int
    waiting_calls: int
