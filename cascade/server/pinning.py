"""Let an operator pin a load level at the admin listener, and let go of it."""

from __future__ import annotations

import asyncio

import orjson
from pydantic import BaseModel, ConfigDict, ValidationError
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from cascade.errors import ConfigError
from cascade.server.http import JSON
from cascade.server.service import Service

__all__ = ["pin_level"]

_MOST_BYTES = 1024
_MOST_SECONDS = 5.0


class _Asked(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, hide_input_in_errors=True)

    level: str | None


async def pin_level(service: Service, http: Request) -> Response:
    """Answer ``PUT /level`` with ``{"level": name}``, or null to let go; a request under way ends as it began."""
    raw = await _body(http)
    if isinstance(raw, Response):
        return raw
    try:
        asked = _Asked.model_validate_json(raw)
    except ValidationError:
        return _refused(422, 'send {"level": a name, or null}')
    stepping = service.stepping
    if stepping is None:
        return _refused(409, "there is one level")
    try:
        stepping.pin(asked.level)
    except ConfigError as error:
        return _refused(422, str(error))
    return Response(orjson.dumps({"level": service.pipeline.level.name, **stepping.told()}), media_type=JSON)


async def _body(http: Request) -> bytes | Response:
    raw = bytearray()
    try:
        async with asyncio.timeout(_MOST_SECONDS):
            async for part in http.stream():
                raw += part
                if len(raw) > _MOST_BYTES:
                    return _refused(413, f"at most {_MOST_BYTES} bytes are accepted")
    except ClientDisconnect:
        return Response(status_code=499)  # nobody receives it
    except TimeoutError:
        return _refused(408, f"the body had not arrived after {_MOST_SECONDS:g} seconds")
    return bytes(raw)


def _refused(status: int, rule: str) -> Response:
    return Response(orjson.dumps({"error": rule, "message": rule, "detail": rule}), status, media_type=JSON)
