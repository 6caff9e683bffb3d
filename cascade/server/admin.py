"""The admin application: metrics and status."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import orjson
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from cascade import __version__
from cascade.server.app import Service
from cascade.server.http import JSON
from cascade.telemetry.metrics import CONTENT_TYPE

__all__ = ["admin_app", "status"]


def admin_app(service: Service) -> Starlette:
    """Return the application of the admin listener."""

    async def metrics(http: Request) -> Response:
        for name, stage in service.pipeline.stages.items():
            service.metrics.unusable.labels(name).set(stage.unusable is not None)
        return Response(service.metrics.exposition(), headers={"content-type": CONTENT_TYPE})

    async def show_status(http: Request) -> Response:
        return Response(orjson.dumps(status(service)), media_type=JSON)

    return Starlette(routes=[Route("/metrics", metrics), Route("/status", show_status)])


def status(service: Service) -> dict[str, Any]:
    """Return the active release and what is known of each stage. It holds no address and no credential."""
    return {
        "version": __version__,
        "ready": service.ready,
        "release": service.pipeline.release.release,
        "digest": service.digest,
        "policy_digest": service.policy_digest,
        "stages": {
            str(name): {
                "declared": asdict(stage.fingerprint),
                "observed": asdict(stage.observed) if stage.observed is not None else None,
                "unusable": stage.unusable,
            }
            for name, stage in service.pipeline.stages.items()
        },
    }
