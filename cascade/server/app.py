"""The public application: one handler for every rerank route, and what tells about the service."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import orjson
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from cascade.errors import RequestError, RequestFault
from cascade.guard.deadline import Clock
from cascade.pipeline import Pipeline
from cascade.server.dialects.base import DialectFormat
from cascade.server.dialects.tei import info
from cascade.server.dialects.vllm import models
from cascade.server.http import JSON, Answer, as_json
from cascade.server.openapi import openapi
from cascade.server.routes import RERANK_ROUTES, RerankRoute
from cascade.telemetry.logs import log_decision
from cascade.telemetry.metrics import Metrics

__all__ = ["Service", "public_app"]


@dataclass(slots=True)
class Service:
    """What the listeners share. ``ready`` is false before start and while stopping."""

    pipeline: Pipeline
    metrics: Metrics
    clock: Clock
    digest: str
    policy_digest: str
    max_body_bytes: int
    ready: bool = False


def public_app(service: Service) -> Starlette:
    """Return the application of the public listener."""
    release = service.pipeline.release
    started = int(time.time())
    fixed = {
        "/info": orjson.dumps(info(release)),
        "/v1/models": orjson.dumps(models(release, started)),
        "/openapi.json": orjson.dumps(openapi(), option=orjson.OPT_SORT_KEYS),
    }
    return Starlette(
        routes=[
            *(Route(route.path, _rerank(service, route), methods=["POST"]) for route in RERANK_ROUTES),
            *(Route(path, _constant(body), methods=["GET"]) for path, body in fixed.items()),
            Route("/livez", _constant(b'{"live":true}'), methods=["GET"]),
            Route("/readyz", _ready(service), methods=["GET"]),
            Route("/health", _ready(service), methods=["GET"]),
        ],
        exception_handlers={Exception: _internal_error(service)},
    )


def _rerank(service: Service, route: RerankRoute) -> Callable[[Request], object]:
    async def endpoint(http: Request) -> Response:
        arrived = service.clock()
        with service.metrics.in_flight.track_inprogress():
            answer = await _answer(service, route, http, arrived)
        return Response(answer.body, answer.status, dict(answer.headers), answer.content_type)

    return endpoint


async def _answer(service: Service, route: RerankRoute, http: Request, arrived: float) -> Answer:
    dialect: DialectFormat = route.formats[0]
    try:
        raw = await _body(http, service.max_body_bytes)
        dialect = route.choose(raw)
        body = as_json(raw)
        dialect = route.choose(body)
        limit = service.pipeline.release.limits.max_documents
        parsed = dialect.parse(body, http.headers, limit)
        ranking = await service.pipeline.rerank(parsed.request, arrived=arrived)
    except RequestError as error:
        answer = dialect.error(error)
        service.metrics.reject(dialect.name, answer.status)
        return answer
    service.metrics.observe(ranking.decision)
    log_decision(ranking.decision)
    return dialect.render(ranking, parsed)


async def _body(http: Request, most: int) -> bytes:
    """Read a body of at most ``most`` bytes."""
    if http.headers.get("content-encoding", "identity").lower() != "identity":
        raise RequestError(RequestFault.UNSUPPORTED, "content-encoding", "send the body uncompressed")
    parts: list[bytes] = []
    size = 0
    try:
        async for part in http.stream():
            size += len(part)
            if size > most:
                raise RequestError(RequestFault.BODY_TOO_LARGE, "body", f"at most {most} bytes are accepted")
            parts.append(part)
    except ClientDisconnect:
        raise RequestError(RequestFault.NOT_JSON, "body", "the connection closed before its end") from None
    return b"".join(parts)


def _constant(body: bytes) -> Callable[[Request], object]:
    async def endpoint(http: Request) -> Response:
        return Response(body, 200, media_type=JSON)

    return endpoint


def _ready(service: Service) -> Callable[[Request], object]:
    async def endpoint(http: Request) -> Response:
        return Response(b"" if service.ready else b"not ready", 200 if service.ready else 503)

    return endpoint


def _internal_error(service: Service) -> Callable[[Request, Exception], Response]:
    def handler(http: Request, error: Exception) -> Response:
        service.metrics.count_fault(error)
        text = "internal error"
        return Response(orjson.dumps({"error": text, "message": text, "detail": text}), 500, media_type=JSON)

    return handler
