"""Metrics of what guards a stage's server: retries, breaker, limits."""

from __future__ import annotations

from typing import Final

from cascade.telemetry.declared import EXPERIMENTAL, STABLE, Declaring
from cascade.types import SCORING, BreakerState, RetryOutcome, StageName

__all__ = ["GuardMetrics"]

_STATES: Final = {BreakerState.CLOSED: 0, BreakerState.HALF_OPEN: 1, BreakerState.OPEN: 2}


class GuardMetrics:
    """Count retries and changes of breakers as they happen; gauges are set when metrics are read."""

    def __init__(self, declare: Declaring) -> None:
        retries = declare.counter(
            STABLE,
            "cascade_retries",
            "Failed calls that might be made again, by what became of that: answered, failed, or not made for want of "
            "budget or time",
            ["stage", "outcome"],
        )
        self._retries = {(s, o): retries.labels(s, o) for s in SCORING for o in RetryOutcome}
        changes = declare.counter(
            STABLE, "cascade_breaker_changes", "Changes of a stage's breaker, by its new state", ["stage", "state"]
        )
        self._changes = {(s, state): changes.labels(s, state) for s in SCORING for state in BreakerState}
        self._breaker = declare.gauge(
            STABLE, "cascade_breaker_state", "Breaker of a stage: 0 closed, 1 half open, 2 open", ["stage"]
        )
        self._limit = declare.gauge(
            EXPERIMENTAL, "cascade_upstream_limit_texts", "Most texts in flight at a server now", ["stage"]
        )
        self._in_flight = declare.gauge(
            EXPERIMENTAL, "cascade_upstream_in_flight_texts", "Texts in flight at a server", ["stage"]
        )
        self._calls_waiting = declare.gauge(
            EXPERIMENTAL, "cascade_upstream_calls_waiting", "Calls that wait here for room at a server", ["stage"]
        )

    def retried(self, stage: StageName, outcome: RetryOutcome) -> None:
        """Count a failed call that might be made again."""
        self._retries[stage, outcome].inc()

    def changed(self, stage: StageName, state: BreakerState) -> None:
        """Count a change of a breaker."""
        self._changes[stage, state].inc()

    def show(self, stage: StageName, state: BreakerState, *, limit: int, in_flight: int, waiting: int) -> None:
        """Set the gauges of a stage."""
        self._breaker.labels(stage).set(_STATES[state])
        self._limit.labels(stage).set(limit)
        self._in_flight.labels(stage).set(in_flight)
        self._calls_waiting.labels(stage).set(waiting)

    def forget(self, stage: StageName) -> None:
        """Show nothing any more of a stage that has no server."""
        for gauge in (self._breaker, self._limit, self._in_flight, self._calls_waiting):
            gauge.remove(stage)
