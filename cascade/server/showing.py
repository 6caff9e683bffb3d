"""Set the gauges that are read from what stands now, each time that metrics are read."""

from __future__ import annotations

from math import nan

from cascade.server.guards import show_guards
from cascade.server.service import Service
from cascade.types import Lane, StageName

__all__ = ["show_now"]


def show_now(service: Service) -> None:
    """Set the gauges of the queue, the keys, and of the stable release's level and stages."""
    metrics, stable = service.metrics, service.traffic.stable
    metrics.levels.level.set(stable.pipeline.level.index)
    for lane in Lane:
        metrics.admission.waiting.labels(lane).set(service.admission.waiting(lane))
        metrics.admission.seats.labels(lane).set(service.admission.held(lane))
    for listener, access in (("public", service.access), ("admin", service.admin_access)):
        if access is not None:
            metrics.keys.live.labels(listener).set(access.live)
    if service.cache is not None:
        told = service.cache.told()
        metrics.cache.scores.set(told.get("scores", nan))
        metrics.cache.bytes.set(told.get("bytes", nan))
    for name in (StageName.SMALL, StageName.LARGE):
        if name not in stable.stages:
            metrics.forget_stage(name)
    for name, stage in stable.stages.items():
        show_guards(metrics.guards, name, stage)
        metrics.unusable.labels(name).set(stage.unusable is not None)
        if stage.congestion is None:
            metrics.forget_load(name)
        else:
            waiting = stage.congestion.waiting
            metrics.waiting.labels(name).set(nan if waiting is None else waiting)
            now = service.clock()
            metrics.signal_stale.labels(name).set(stage.congestion.is_stale(now))
            metrics.signal_silent.labels(name).set(stage.congestion.is_silent(now))
