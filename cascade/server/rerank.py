"""The one handler of every rerank route."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from cascade.decision import Decision, Ranking
from cascade.errors import NotAnswered, RequestError, RequestFault
from cascade.server.access import admitted_by
from cascade.server.admitting import rank_admitted, refuse_too_long
from cascade.server.choosing import Chosen, parse_and_choose
from cascade.server.dialects.base import DialectFormat
from cascade.server.fields import logged_field
from cascade.server.http import Answer, as_json, client_request_id, deadline_from
from cascade.server.keys import Key, Right
from cascade.server.routes import RerankRoute
from cascade.server.service import Service
from cascade.server.tracing import request_span, tell_status
from cascade.telemetry.logs import UNWRITABLE, log_abandoned, log_decision, log_rejection
from cascade.telemetry.span_schema import Attribute
from cascade.telemetry.span_tells import tell_decision
from cascade.telemetry.spans import current

__all__ = ["rerank_endpoint"]

_BY_THE_RELEASE: Final = frozenset({RequestFault.TOO_LONG, RequestFault.SCHEMA})
"""Why a body that was parsed is refused by the release that is to decide it: another might take it."""
_CLIENT_GONE: Final = 499
"""What nginx logs for a client that closed the connection; nobody receives it."""
_LEAST_BODY_SECONDS: Final = 1.0
"""A body that comes later than a short deadline is still worth first-stage order, to whoever waits for it."""
_HEAD_BYTES: Final = 65_536
"""As much of a body as is looked at to tell the dialect of a refusal."""


def rerank_endpoint(service: Service, route: RerankRoute) -> Callable[[Request], object]:
    """Return the handler of a route."""

    async def endpoint(http: Request) -> Response:
        arrived = service.clock()
        try:
            key = _key_of(service, http)
        except RequestError as error:  # nothing is held for whom is not let in
            answer = await _not_let_in(service, route, http, error)
        else:
            service.held += 1
            try:
                with service.metrics.in_flight.track_inprogress(), request_span(service, route, http) as span:
                    answer = await _answer(service, route, http, arrived, key)
                    tell_status(span, answer.status)
            finally:
                service.held -= 1
        headers = dict(answer.headers)
        if service.draining:  # so that a client goes elsewhere before the connection is closed under its next request
            headers["connection"] = "close"
        return Response(answer.body, answer.status, headers, answer.content_type)

    return endpoint


async def _answer(service: Service, route: RerankRoute, http: Request, arrived: float, key: Key | None) -> Answer:
    raw = bytearray()
    dialect: DialectFormat | None = None
    chosen: Chosen | None = None
    asked_by = client_request_id(http.headers)
    try:
        if service.held > service.max_requests:
            raise RequestError(RequestFault.BUSY, "answer", "too many requests are held", retry_after_s=1)
        await _read_body(service, http, into=raw)
        body = as_json(bytes(raw))
        dialect = route.choose(body)
        if not service.started:
            raise RequestError(RequestFault.NOT_READY, "answer", "the stages are starting", retry_after_s=1)
        chosen = parse_and_choose(service.traffic, dialect, body, http.headers)
        chosen.release.enter()
        parsed = chosen.parsed
        refuse_too_long(chosen.release.pipeline.release, parsed, len(raw))
        if service.access is not None and key is not None:
            parsed = admitted_by(service.access, key, parsed)
        ranking = await _while_connected(http, rank_admitted(service, chosen, parsed, arrived, len(raw)))
        answer = dialect.render(ranking, parsed)
    except RequestError as error:
        if isinstance(error, NotAnswered) or error.fault in _BY_THE_RELEASE:
            _tell_arm(service, chosen, error.decision if isinstance(error, NotAnswered) else None)
        dialect = dialect or route.choose(bytes(raw))
        answer = dialect.error(error)
        _tell_error(service, dialect, error, answer.status, asked_by)
        return answer
    except ClientDisconnect:
        service.metrics.abandoned.inc()
        _tell_arm(service, chosen, left_after_ms=(service.clock() - arrived) * 1000)
        name = dialect.name if dialect is not None else None
        current().set(Attribute.ERROR, "client_gone")
        _write(service, lambda: log_abandoned(name, client_request_id=asked_by))
        return Answer(_CLIENT_GONE, b"")
    except Exception:
        _tell_arm(service, chosen)  # 500 is answered further out
        raise
    finally:
        if chosen is not None:
            chosen.release.leave()
    tell_decision(current(), ranking.decision, release_digest=chosen.release.digest)
    service.traffic.settled(chosen.settled(ranking.decision, answered=True))
    _write(service, lambda: log_decision(ranking.decision, client_request_id=asked_by))
    return answer


def _tell_arm(
    service: Service, chosen: Chosen | None, decision: Decision | None = None, left_after_ms: float | None = None
) -> None:
    """Tell of a request that the arm which had it did not answer; of none where no arm had it."""
    if chosen is not None:
        service.traffic.settled(chosen.settled(decision, answered=False, left_after_ms=left_after_ms))


def _key_of(service: Service, http: Request) -> Key | None:
    """Return the key that the request's head shows, None where none is asked for. Raises RequestError."""
    return None if service.access is None else service.access.check(http.headers, Right.RERANK)


async def _not_let_in(service: Service, route: RerankRoute, http: Request, error: RequestError) -> Answer:
    """Return the refusal. The body's beginning is looked at, once, where it alone tells the dialect."""
    head = b""
    if len(route.formats) > 1:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LEAST_BODY_SECONDS):
                head = (await http.receive()).get("body", b"")[:_HEAD_BYTES]
    dialect = route.choose(head)
    answer = dialect.error(error)
    _tell_error(service, dialect, error, answer.status, client_request_id(http.headers))
    return answer


def _tell_error(
    service: Service, dialect: DialectFormat, error: RequestError, status: int, asked_by: str | None
) -> None:
    """Count and log a request that got an error: decided and refused, or rejected before that."""
    service.metrics.reject(dialect.name, status)
    span = current()
    span.set(Attribute.DIALECT, dialect.name)
    span.set(Attribute.ERROR, error.fault)
    if isinstance(error, NotAnswered):
        decision = error.decision
        tell_decision(span, decision)
        _write(service, lambda: log_decision(decision, outcome="refused", client_request_id=asked_by))
        return
    fault, field = error.fault, logged_field(error.field)
    _write(
        service,
        lambda: log_rejection(dialect.name, fault=fault, field=field, status=status, client_request_id=asked_by),
    )


def _write(service: Service, write: Callable[[], None]) -> None:
    """Write a request's line. A log that cannot be written is a fault of ours, and costs no answer."""
    try:
        write()
    except UNWRITABLE as error:
        service.faults(error)


async def _while_connected(http: Request, work: Coroutine[Any, Any, Ranking]) -> Ranking:
    """Run work until it ends or the client goes away; then cancel it, and with it what is under way upstream.

    Raises ClientDisconnect.
    """
    try:
        async with asyncio.timeout(None) as connected:
            leaving = asyncio.create_task(_end_with_connection(http, connected))
            try:
                return await work
            finally:
                leaving.cancel()  # and not waited for: the answer would leave a turn of the loop later
    except TimeoutError:
        if not connected.expired():
            raise
    raise ClientDisconnect


async def _end_with_connection(http: Request, connected: asyncio.Timeout) -> None:
    """End a scope when the client goes away."""
    while (await http.receive())["type"] != "http.disconnect":
        pass
    connected.reschedule(asyncio.get_running_loop().time())


async def _read_body(service: Service, http: Request, *, into: bytearray) -> None:
    """Read a body within the service's limits. What was read before a fault still tells the caller's dialect."""
    if http.headers.get("content-encoding", "identity").lower() != "identity":
        raise RequestError(RequestFault.UNSUPPORTED, "content-encoding", "send the body uncompressed")
    most, seconds = service.max_body_bytes, _body_seconds(service, http.headers)
    try:
        async with asyncio.timeout(seconds):
            async for part in http.stream():
                into += part[: most + 1 - len(into)]
                if len(into) > most:
                    raise RequestError(RequestFault.BODY_TOO_LARGE, "body", f"at most {most} bytes are accepted")
    except TimeoutError:
        raise RequestError(RequestFault.TOO_SLOW, "body", f"had not arrived after {seconds:g} seconds") from None


def _body_seconds(service: Service, headers: Mapping[str, str]) -> float:
    try:
        asked_ms = deadline_from(headers)
    except RequestError:  # told once the body has told the dialect
        asked_ms = None
    deadline_s = (service.traffic.total_ms if asked_ms is None else asked_ms) / 1000
    return min(service.body_seconds, max(_LEAST_BODY_SECONDS, deadline_s))
