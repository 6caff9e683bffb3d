"""Let an operator pin a load level at the admin listener, and let go of it."""

from __future__ import annotations

import orjson
from pydantic import BaseModel, ConfigDict, ValidationError
from starlette.requests import Request
from starlette.responses import Response

from cascade.errors import ConfigError
from cascade.server.admin_body import body_of, from_a_page, refused
from cascade.server.http import JSON
from cascade.server.service import Service

__all__ = ["pin_level"]

_MOST_BYTES = 1024
_MOST_SECONDS = 5.0


class _Asked(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, hide_input_in_errors=True)

    level: str | None


async def pin_level(service: Service, http: Request) -> Response:
    """Answer ``PUT /level`` with ``{"level": name}`` of the stable release, or null to let go.

    A request under way ends as it began.
    """
    if (no := from_a_page(http)) is not None:
        return no
    raw = await body_of(http, most_bytes=_MOST_BYTES, most_seconds=_MOST_SECONDS)
    if isinstance(raw, Response):
        return raw
    try:
        asked = _Asked.model_validate_json(raw)
    except ValidationError:
        return refused(422, 'send {"level": a name, or null}')
    try:
        service.traffic.pin(asked.level)
    except ConfigError as error:
        return refused(422, str(error))
    stable = service.traffic.stable
    return Response(orjson.dumps({"level": stable.pipeline.level.name, **stable.stepping.told()}), media_type=JSON)
