"""The admin application: metrics and status."""

from __future__ import annotations

from dataclasses import asdict
from math import nan
from typing import Any

import orjson
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from cascade import __version__
from cascade.policy.levels import level_names
from cascade.server.app import json_errors
from cascade.server.http import JSON
from cascade.server.service import Service
from cascade.stages.base import Congestion
from cascade.telemetry.metrics import CONTENT_TYPE

__all__ = ["admin_app", "status"]


def admin_app(service: Service) -> Starlette:
    """Return the application of the admin listener."""

    async def metrics(http: Request) -> Response:
        service.metrics.level.set(service.pipeline.level.index)
        for name, stage in service.pipeline.stages.items():
            service.metrics.unusable.labels(name).set(stage.unusable is not None)
            if stage.congestion is not None:
                told = stage.congestion.waiting
                service.metrics.waiting.labels(name).set(nan if told is None else told)
                service.metrics.signal_stale.labels(name).set(stage.congestion.is_stale(service.clock()))
        return Response(service.metrics.exposition(), headers={"content-type": CONTENT_TYPE})

    async def show_status(http: Request) -> Response:
        return Response(orjson.dumps(status(service)), media_type=JSON)

    app = Starlette(
        routes=[Route("/metrics", metrics), Route("/status", show_status)], exception_handlers=json_errors(service)
    )
    app.router.redirect_slashes = False
    return app


def status(service: Service) -> dict[str, Any]:
    """Return the active release and what is known of each stage. It holds no address and no credential."""
    return {
        "version": __version__,
        "ready": service.ready,
        "release": service.pipeline.release.release,
        "digest": service.digest,
        "policy_digest": service.policy_digest,
        "level": service.pipeline.level.name,
        "levels": list(level_names(service.pipeline.normal)),
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
                "load": _load(stage.congestion, service.clock()),
                "probe": asdict(service.probes[name]) if name in service.probes else None,
            }
            for name, stage in service.pipeline.stages.items()
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
    }
