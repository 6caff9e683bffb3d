"""Set the gauges that are read from what stands now, each time that metrics are read."""

from __future__ import annotations

from math import nan

from cascade.guard.deadline import Clock
from cascade.server.guards import show_guards
from cascade.server.service import Service
from cascade.stages.base import Stage
from cascade.telemetry.metrics import Metrics
from cascade.types import SCORING, Lane, StageName

__all__ = ["show_now"]


def show_now(service: Service) -> None:
    """Set the gauges of the queue, the listeners, and of the stable release's level, calibration and stages."""
    metrics, stable = service.metrics, service.traffic.stable
    metrics.levels.level.set(stable.pipeline.level.index)
    metrics.ranking.show_drift(stable.drift())
    is_of_start = stable.digest == service.choices.bundle.loaded.digest
    metrics.arms.desired_usable(service.desk is None or service.desk.desired_fault is None)
    metrics.arms.passed_over(len(service.choices.passed_over) if is_of_start else 0)
    for lane in Lane:
        metrics.admission.waiting.labels(lane).set(service.admission.waiting(lane))
        metrics.admission.seats.labels(lane).set(service.admission.held(lane))
    if service.cache is not None:
        told = service.cache.told()
        metrics.cache.scores.set(told.get("scores", nan))
        metrics.cache.bytes.set(told.get("bytes", nan))
    _show_listeners(service)
    for name in SCORING:
        if name not in stable.stages:
            metrics.forget_stage(name)
    for name, stage in stable.stages.items():
        _show_stage(metrics, name, stage, service.clock)


def _show_listeners(service: Service) -> None:
    metrics = service.metrics
    for listener, access in (("public", service.access), ("admin", service.admin_access)):
        if access is not None:
            metrics.keys.live.labels(listener).set(access.live)
    for name, connections in service.connections.items():
        metrics.listeners.connections.labels(name).set(len(connections))
    for name, tls in service.tls.items():
        metrics.listeners.expiry.labels(name).set(tls.expires)


def _show_stage(metrics: Metrics, name: StageName, stage: Stage, clock: Clock) -> None:
    show_guards(metrics.guards, name, stage)
    metrics.load.unusable.labels(name).set(stage.unusable is not None)
    congestion = stage.congestion
    if congestion is None:
        metrics.load.forget(name)
        return
    metrics.load.waiting.labels(name).set(nan if congestion.waiting is None else congestion.waiting)
    now = clock()
    metrics.load.stale.labels(name).set(congestion.is_stale(now))
    metrics.load.silent.labels(name).set(congestion.is_silent(now))
