"""The routes of a rollout at the admin listener: where it stands, and what an operator asks of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

import orjson
from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from cascade.errors import ConfigError, RequestError, RequestFault
from cascade.rollout.activation import Refused
from cascade.rollout.history import MOST_ENTRIES
from cascade.rollout.ports import RolloutDesk
from cascade.rollout.tar import LARGEST_TAR
from cascade.server.admin_body import body_of, from_a_page, refused
from cascade.server.http import JSON, as_json, validate
from cascade.server.rollout_asked import AskedAbort, AskedPromotion, AskedStart
from cascade.server.service import Service

__all__ = ["TAR", "rollout_routes"]

TAR: Final = "application/x-tar"
_MOST_BYTES: Final = 4096
_MOST_SECONDS: Final = 5.0
_UPLOAD_SECONDS: Final = 60.0

Asked = TypeVar("Asked", bound=BaseModel)
Endpoint = Callable[[Request], Awaitable[Response]]


def rollout_routes(service: Service) -> list[Route]:
    """Return the routes; they ask the service's desk, of the moment in which they are asked."""

    def reads(path: str, tell: Callable[[RolloutDesk, Request], Awaitable[Any]]) -> Route:
        async def endpoint(http: Request) -> Response:
            desk = service.desk
            return _no_desk(service) if desk is None else await _answered(lambda: tell(desk, http))

        return Route(path, endpoint, methods=["GET"])

    def changes(path: str, model: type[Asked], act: Callable[[RolloutDesk, Asked], Awaitable[Any]]) -> Route:
        async def endpoint(http: Request) -> Response:
            desk = service.desk
            if (no := _may_not_change(service, http, JSON)) is not None:
                return no
            raw = await body_of(http, most_bytes=_MOST_BYTES, most_seconds=_MOST_SECONDS)
            if isinstance(raw, Response):
                return raw
            return (
                _no_desk(service) if desk is None else await _answered(lambda: act(desk, validate(model, as_json(raw))))
            )

        return Route(path, endpoint, methods=["POST"])

    return [
        reads("/rollout", _status),
        reads("/rollout/foreseen", _foreseen),
        reads("/rollout/history", _history),
        Route("/rollout/decisions", _decisions(service), methods=["GET"]),
        changes("/rollout", AskedStart, _start),
        changes("/rollout/promote", AskedPromotion, lambda desk, asked: desk.promote(force=asked.force)),
        changes("/rollout/abort", AskedAbort, lambda desk, asked: desk.abort(asked.reason)),
        Route("/rollout/bundles", _Upload(service).endpoint, methods=["POST"]),
    ]


async def _status(desk: RolloutDesk, http: Request) -> dict[str, Any]:
    return desk.status()


async def _foreseen(desk: RolloutDesk, http: Request) -> dict[str, Any]:
    wanted = http.query_params.get("release", "")
    return await desk.foresee(validate(AskedStart, {"release": wanted}).release)


async def _history(desk: RolloutDesk, http: Request) -> dict[str, Any]:
    most = http.query_params.get("most", str(MOST_ENTRIES))
    if not (most.isascii() and most.isdigit() and len(most) < 6):
        raise RequestError(RequestFault.SCHEMA, "most", "must be a whole number")
    return {"history": desk.history()[: int(most)]}


async def _start(desk: RolloutDesk, asked: AskedStart) -> dict[str, Any]:
    return await desk.start(asked.release, at_once=asked.at_once, lenient=asked.lenient)


def _decisions(service: Service) -> Endpoint:
    async def endpoint(http: Request) -> Response:
        return _json({"decisions": service.traffic.recent.told()})

    return endpoint


class _Upload:
    """Take one bundle at a time: each is held in memory while it is looked at."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._taking = False

    async def endpoint(self, http: Request) -> Response:
        """Answer ``POST /rollout/bundles`` with the digest of what was taken."""
        desk = self._service.desk
        if (no := _may_not_change(self._service, http, TAR)) is not None:
            return no
        if desk is None:
            return _no_desk(self._service)
        if self._taking:
            return _again("another bundle is being taken")
        self._taking = True
        try:
            raw = await body_of(http, most_bytes=LARGEST_TAR, most_seconds=_UPLOAD_SECONDS)
            if isinstance(raw, Response):
                return raw
            return await _answered(lambda: _taken(desk, raw))
        finally:
            self._taking = False


async def _taken(desk: RolloutDesk, raw: bytes) -> dict[str, Any]:
    return {"digest": await desk.put(raw)}


def _may_not_change(service: Service, http: Request, content_type: str) -> Response | None:
    """Refuse what comes by way of a web page, whose scripts can send some types of content without asking first, these not."""
    if (no := from_a_page(http)) is not None:
        return no
    sent = http.headers.get("content-type", "").partition(";")[0].strip().lower()
    if sent != content_type:
        return refused(415, f"content-type: must be {content_type}")
    return None if service.started and not service.draining else _again("not ready")


async def _answered(ask: Callable[[], Awaitable[Any]]) -> Response:
    try:
        return _json(await ask())
    except RequestError as error:
        return refused(400 if error.fault is RequestFault.NOT_JSON else 422, str(error))
    except Refused as error:
        return refused(409, str(error), step=error.step, why=list(error.why), passing=error.passing)
    except ConfigError as error:
        return refused(409, str(error), step=None, why=[str(error)], passing=False)


def _json(told: Any) -> Response:
    return Response(orjson.dumps(told, option=orjson.OPT_SERIALIZE_NUMPY), media_type=JSON)


def _no_desk(service: Service) -> Response:
    return refused(404, "this process rolls out no releases") if service.started else _again("not ready")


def _again(why: str) -> Response:
    answer = refused(503, f"{why}: try again")
    answer.headers["retry-after"] = "1"
    return answer
