"""What the guards of the stages tell: metrics, status, and a line of the log for each change of a breaker."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from cascade.guard.events import GuardEvents
from cascade.stages.base import Stage
from cascade.telemetry.guard_metrics import GuardMetrics
from cascade.telemetry.logs import note
from cascade.types import BreakerState, StageName

__all__ = ["guard_events", "guard_status", "show_guards"]


def guard_events(metrics: GuardMetrics) -> Callable[[StageName], GuardEvents]:
    """Return what a stage is to tell of its guards."""

    def of(stage: StageName) -> GuardEvents:
        def changed(state: BreakerState) -> None:
            metrics.changed(stage, state)
            note("info" if state is BreakerState.CLOSED else "warning", "breaker", stage=stage, state=state)

        return GuardEvents(retried=lambda outcome: metrics.retried(stage, outcome), breaker=changed)

    return of


def show_guards(metrics: GuardMetrics, name: StageName, stage: Stage) -> None:
    """Set the gauges of a stage, where it has a server."""
    now = stage.guarded
    if now is None:
        metrics.forget(name)
    else:
        metrics.show(name, now.breaker, limit=now.limit_texts, in_flight=now.in_flight_texts, waiting=now.waiting_calls)


def guard_status(stage: Stage) -> dict[str, Any] | None:
    """Return how the guards of a stage stand, None where it has no server."""
    return None if stage.guarded is None else asdict(stage.guarded)
