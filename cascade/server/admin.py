"""The admin application: metrics, status, and the load level that an operator pins."""

from __future__ import annotations

from dataclasses import asdict
from math import nan
from typing import Any

import orjson
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from cascade import __version__
from cascade.policy.levels import level_names
from cascade.server.app import json_errors
from cascade.server.guarded_admin import GuardedAdmin
from cascade.server.guards import guard_status, show_guards
from cascade.server.http import JSON
from cascade.server.pinning import pin_level
from cascade.server.service import Service
from cascade.stages.base import Congestion
from cascade.telemetry.metrics import CONTENT_TYPE
from cascade.types import Lane

__all__ = ["admin_app", "status"]


def admin_app(service: Service) -> Starlette:
    """Return the application of the admin listener."""

    async def metrics(http: Request) -> Response:
        service.metrics.levels.level.set(service.pipeline.level.index)
        for lane in Lane:
            service.metrics.admission.waiting.labels(lane).set(service.admission.waiting(lane))
            service.metrics.admission.seats.labels(lane).set(service.admission.held(lane))
        for listener, access in (("public", service.access), ("admin", service.admin_access)):
            if access is not None:
                service.metrics.keys.live.labels(listener).set(access.live)
        for name, stage in service.pipeline.every_stage.items():
            show_guards(service.metrics.guards, name, stage)
            service.metrics.unusable.labels(name).set(stage.unusable is not None)
            if stage.congestion is not None:
                told = stage.congestion.waiting
                service.metrics.waiting.labels(name).set(nan if told is None else told)
                now = service.clock()
                service.metrics.signal_stale.labels(name).set(stage.congestion.is_stale(now))
                service.metrics.signal_silent.labels(name).set(stage.congestion.is_silent(now))
        return Response(service.metrics.exposition(), headers={"content-type": CONTENT_TYPE})

    async def show_status(http: Request) -> Response:
        return Response(orjson.dumps(status(service)), media_type=JSON)

    async def pin(http: Request) -> Response:
        return await pin_level(service, http)

    app = Starlette(
        routes=[
            Route("/metrics", metrics),
            Route("/status", show_status),
            Route("/level", pin, methods=["PUT"]),
        ],
        middleware=[] if service.admin_access is None else [Middleware(GuardedAdmin, service.admin_access)],
        exception_handlers=json_errors(service),
    )
    app.router.redirect_slashes = False
    return app


def status(service: Service) -> dict[str, Any]:
    """Return the active release and what is known of each stage. It holds no address and no credential."""
    return {
        "version": __version__,
        "ready": service.ready,
        "draining": service.draining,
        "admission": {
            "held": service.held,
            "seats": {str(lane): service.admission.held(lane) for lane in Lane},
            "waiting": {str(lane): service.admission.waiting(lane) for lane in Lane},
        },
        "release": service.pipeline.release.release,
        "digest": service.digest,
        "policy_digest": service.policy_digest,
        "level": service.pipeline.level.name,
        "levels": list(level_names(service.pipeline.normal)),
        "measured": {
            "why_not": service.measured.fault,
            "levels": {name: asdict(quality) for name, quality in service.measured.levels.items()},
        },
        "evidence_faults": dict(service.evidence_faults),
        "stepping": None if service.stepping is None else service.stepping.told(),
        "calibration": {
            "digest": service.calibration.digest,
            "state": service.calibration.state,
            "reasons": service.calibration.reasons,
            "uncompared": list(service.calibration.uncompared),
        },
        "stages": {
            str(name): {
                "declared": asdict(stage.fingerprint),
                "observed": asdict(stage.observed) if stage.observed is not None else None,
                "unusable": stage.unusable,
                "guards": guard_status(stage),
                "load": _load(stage.congestion, service.clock()),
                "probe": asdict(service.probes[name]) if name in service.probes else None,
            }
            for name, stage in service.pipeline.every_stage.items()
        },
    }


def _load(told: Congestion | None, now: float) -> dict[str, Any] | None:
    """Return what a server told of its load, and whether that is too old to count."""
    if told is None:
        return None
    return {
        "queue_ms": told.queue_ms,
        "waiting": told.waiting,
        "running": told.running,
        "age_s": round(now - told.at, 3),
        "stale": told.is_stale(now),
        "silent": told.is_silent(now),
    }
