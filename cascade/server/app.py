"""The public application: the rerank routes, and what tells about the service."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from functools import cache
from typing import cast

import orjson
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from cascade.errors import RequestError
from cascade.policy.release import Release
from cascade.server.dialects.base import DialectFormat
from cascade.server.dialects.tei import TeiFormat, info
from cascade.server.dialects.vllm import VllmFormat, models
from cascade.server.http import JSON
from cascade.server.openapi import openapi
from cascade.server.rerank import rerank_endpoint
from cascade.server.routes import HEALTH_PATHS, LIVE_PATH, rerank_routes
from cascade.server.service import RerankDialect, Service

__all__ = ["health_routes", "json_errors", "public_app"]


def public_app(service: Service) -> Starlette:
    """Return the application of the public listener."""
    started = int(time.time())
    guarded: dict[str, tuple[Callable[[Release], object], DialectFormat]] = {
        "/info": (info, TeiFormat()),
        "/v1/models": (lambda release: models(release, started), VllmFormat("1")),
    }
    fixed = {
        "/openapi.json": _document(service.rerank_dialect),
    }
    app = Starlette(
        routes=[
            *(
                Route(route.path, rerank_endpoint(service, route), methods=["POST"])
                for route in rerank_routes(service.rerank_dialect)
            ),
            *(Route(path, _guarded(service, *told), methods=["GET"]) for path, told in guarded.items()),
            *(Route(path, _constant(body), methods=["GET"]) for path, body in fixed.items()),
            *health_routes(service, HEALTH_PATHS),
        ],
        exception_handlers=json_errors(service),
    )
    app.router.redirect_slashes = False  # a redirected POST loses its body at many clients
    return app


def health_routes(service: Service, ready_paths: Sequence[str]) -> list[Route]:
    """Return the routes of liveness and, at ``ready_paths``, of readiness."""
    live = Route(LIVE_PATH, _constant(b'{"live":true}'), methods=["GET"])
    return [live, *(Route(path, _ready(service), methods=["GET"]) for path in ready_paths)]


def _constant(body: bytes) -> Callable[[Request], object]:
    async def endpoint(http: Request) -> Response:
        return Response(body, 200, media_type=JSON)

    return endpoint


def _guarded(
    service: Service, tell: Callable[[Release], object], dialect: DialectFormat
) -> Callable[[Request], object]:
    """Answer whoever shows a key, where keys are asked for: TEI and vLLM guard these as they guard scoring.

    What clients are told of the model is the stable release's, and does not change with load.
    """

    async def endpoint(http: Request) -> Response:
        try:
            if service.access is not None:
                service.access.check(http.headers, None)
        except RequestError as error:
            answer = dialect.error(error)
            return Response(answer.body, answer.status, dict(answer.headers), answer.content_type)
        return Response(orjson.dumps(tell(service.traffic.stable.bundle.loaded.release)), 200, media_type=JSON)

    return endpoint


def _ready(service: Service) -> Callable[[Request], object]:
    async def endpoint(http: Request) -> Response:
        return Response(b"" if service.ready else b"not ready", 200 if service.ready else 503)

    return endpoint


def json_errors(service: Service) -> dict[type[Exception], Callable[[Request, Exception], Awaitable[Response]]]:
    """Return handlers that answer 404, 405 and 500 in JSON: clients read ``detail`` of every error."""

    async def no_such_route(http: Request, error: Exception) -> Response:
        refused = cast("HTTPException", error)  # the class that it is registered for
        return Response(_error_body(refused.detail), refused.status_code, refused.headers, JSON)

    async def internal_error(http: Request, error: Exception) -> Response:
        service.faults(error)
        return Response(_error_body("internal error"), 500, media_type=JSON)

    return {HTTPException: no_such_route, Exception: internal_error}


def _error_body(text: str) -> bytes:
    return orjson.dumps({"error": text, "message": text, "detail": text})


@cache
def _document(rerank_dialect: RerankDialect) -> bytes:
    """Return the description of the public listener: made once, as it takes as long as many requests."""
    return orjson.dumps(openapi(rerank_dialect), option=orjson.OPT_SORT_KEYS)
