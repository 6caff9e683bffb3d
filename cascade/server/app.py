"""The public application: one handler for every rerank route, and what tells about the service."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Final, cast

import orjson
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from cascade.errors import NotAnswered, RequestError, RequestFault
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
from cascade.types import Decision, Ranking

__all__ = ["Service", "public_app"]

_CLIENT_GONE: Final = 499
"""What nginx logs for a client that closed the connection; nobody receives it."""


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
        exception_handlers={HTTPException: _no_such_route, Exception: _internal_error(service)},
    )


def _rerank(service: Service, route: RerankRoute) -> Callable[[Request], object]:
    async def endpoint(http: Request) -> Response:
        arrived = service.clock()
        with service.metrics.in_flight.track_inprogress():
            answer = await _answer(service, route, http, arrived)
        return Response(answer.body, answer.status, dict(answer.headers), answer.content_type)

    return endpoint


async def _answer(service: Service, route: RerankRoute, http: Request, arrived: float) -> Answer:
    raw = bytearray()
    dialect: DialectFormat | None = None
    try:
        await _read_body(http, service.max_body_bytes, into=raw)
        body = as_json(bytes(raw))
        dialect = route.choose(body)
        limit = service.pipeline.release.limits.max_documents
        parsed = dialect.parse(body, http.headers, limit)
        ranking = await _while_connected(http, service.pipeline.rerank(parsed.request, arrived=arrived))
    except RequestError as error:
        if isinstance(error, NotAnswered):
            _tell(service, error.decision)
        dialect = dialect or route.choose(bytes(raw))
        answer = dialect.error(error)
        service.metrics.reject(dialect.name, answer.status)
        return answer
    except ClientDisconnect:
        service.metrics.abandoned.inc()
        return Answer(_CLIENT_GONE, b"")
    _tell(service, ranking.decision)
    return dialect.render(ranking, parsed)


async def _while_connected(http: Request, work: Coroutine[Any, Any, Ranking]) -> Ranking:
    """Run work until it ends or the client goes away; then cancel it, and with it what is under way upstream.

    Raises ClientDisconnect.
    """
    running = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_disconnected(http))
    try:
        await asyncio.wait((running, leaving), return_when=asyncio.FIRST_COMPLETED)
        if not running.done():
            raise ClientDisconnect
        return running.result()
    finally:
        running.cancel()
        leaving.cancel()
        await asyncio.gather(running, leaving, return_exceptions=True)


async def _disconnected(http: Request) -> None:
    while (await http.receive())["type"] != "http.disconnect":
        pass


def _tell(service: Service, decision: Decision) -> None:
    """Count and log an answered request. A log that cannot be written is a fault of ours, and costs no answer."""
    service.metrics.observe(decision)
    try:
        log_decision(decision)
    except (OSError, ValueError) as error:  # the disk is full, or the stream is closed
        service.metrics.count_fault(error)


async def _read_body(http: Request, most: int, *, into: bytearray) -> None:
    """Read a body of at most ``most`` bytes. What was read before a fault still tells the caller's dialect."""
    if http.headers.get("content-encoding", "identity").lower() != "identity":
        raise RequestError(RequestFault.UNSUPPORTED, "content-encoding", "send the body uncompressed")
    async for part in http.stream():
        into += part[: most + 1 - len(into)]
        if len(into) > most:
            raise RequestError(RequestFault.BODY_TOO_LARGE, "body", f"at most {most} bytes are accepted")


def _constant(body: bytes) -> Callable[[Request], object]:
    async def endpoint(http: Request) -> Response:
        return Response(body, 200, media_type=JSON)

    return endpoint


def _ready(service: Service) -> Callable[[Request], object]:
    async def endpoint(http: Request) -> Response:
        return Response(b"" if service.ready else b"not ready", 200 if service.ready else 503)

    return endpoint


def _no_such_route(http: Request, error: Exception) -> Response:
    """Answer 404 and 405 in JSON: clients read ``detail`` of every error."""
    refused = cast("HTTPException", error)  # the class that it is registered for
    return Response(_error_body(refused.detail), refused.status_code, refused.headers, JSON)


def _internal_error(service: Service) -> Callable[[Request, Exception], Awaitable[Response]]:
    async def handler(http: Request, error: Exception) -> Response:
        service.metrics.count_fault(error)
        return Response(_error_body("internal error"), 500, media_type=JSON)

    return handler


def _error_body(text: str) -> bytes:
    return orjson.dumps({"error": text, "message": text, "detail": text})
