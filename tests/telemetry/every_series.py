"""Metrics with every gauge set, as they are once a process serves."""

from __future__ import annotations

from cascade.telemetry.metrics import Metrics
from cascade.types import BreakerState, Lane, StageName

__all__ = ["LISTENERS", "every_series"]

LISTENERS = ("public", "admin")


def every_series() -> Metrics:
    """Return metrics that show every series there may be, of a release that names one tenant."""
    metrics = Metrics()
    metrics.admission.name_tenants(["acme"])
    for lane in Lane:
        metrics.admission.waiting.labels(lane).set(1)
        metrics.admission.seats.labels(lane).set(1)
    for listener in LISTENERS:
        metrics.keys.live.labels(listener).set(1)
        metrics.listeners.connections.labels(listener).set(1)
        metrics.listeners.expiry.labels(listener).set(1)
    metrics.tell_evidence(())
    metrics.ranking.show_drift({"score": (0.1, 200), "margin": (0.1, 200)})
    for name in (StageName.SMALL, StageName.LARGE):
        metrics.guards.show(name, BreakerState.OPEN, limit=1, in_flight=1, waiting=1)
        for gauge in (metrics.load.unusable, metrics.load.waiting, metrics.load.stale, metrics.load.silent):
            gauge.labels(name).set(1)
    return metrics
