"""The admin application: metrics, status, health, rollouts and the page of them, and the load level that an operator pins."""

from __future__ import annotations

import orjson
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from cascade.server.access import Access
from cascade.server.app import health_routes, json_errors
from cascade.server.guarded_admin import GuardedAdmin
from cascade.server.http import JSON
from cascade.server.page import PAGE_PATH, page_route
from cascade.server.pinning import pin_level
from cascade.server.rollout_routes import rollout_routes
from cascade.server.routes import LIVE_PATH, READY_PATH
from cascade.server.service import Service
from cascade.server.showing import show_now
from cascade.server.status import status
from cascade.telemetry.metrics import CONTENT_TYPE

__all__ = ["admin_app"]


def admin_app(service: Service) -> Starlette:
    """Return the application of the admin listener."""

    async def metrics(http: Request) -> Response:
        show_now(service)
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
            *rollout_routes(service),
            *health_routes(service, [READY_PATH]),
            page_route(asks_for_key=service.admin_access is not None),
        ],
        middleware=_guard(service.admin_access),
        exception_handlers=json_errors(service),
    )
    app.router.redirect_slashes = False
    return app


def _guard(access: Access | None) -> list[Middleware]:
    """Ask for a key at every route but the page, which holds nothing of the process, and health, which probes ask for."""
    open_to_all = frozenset({PAGE_PATH, LIVE_PATH, READY_PATH})
    return [] if access is None else [Middleware(GuardedAdmin, access, open_to_all=open_to_all)]
