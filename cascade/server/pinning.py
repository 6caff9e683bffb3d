"""Let an operator pin a load level at the admin listener, and let go of it."""

from __future__ import annotations

import orjson
from pydantic import BaseModel, ConfigDict, ValidationError
from starlette.requests import Request
from starlette.responses import Response

from cascade.errors import ConfigError
from cascade.server.http import JSON
from cascade.server.service import Service

__all__ = ["pin_level"]

_MOST_BYTES = 1024


class _Asked(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, hide_input_in_errors=True)

    level: str | None


async def pin_level(service: Service, http: Request) -> Response:
    """Answer ``PUT /level`` with ``{"level": name}``, or null to let go; a request under way ends as it began."""
    raw = bytearray()
    async for part in http.stream():
        raw += part
        if len(raw) > _MOST_BYTES:
            return _refused(413, f"at most {_MOST_BYTES} bytes are accepted")
    try:
        asked = _Asked.model_validate_json(bytes(raw))
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


def _refused(status: int, rule: str) -> Response:
    return Response(orjson.dumps({"error": rule, "message": rule, "detail": rule}), status, media_type=JSON)
