"""Ask for a key at the admin listener, whatever its route but those that are named."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from typing import Final

import orjson
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from cascade.errors import RequestError, RequestFault
from cascade.server.access import Access
from cascade.server.http import JSON, error_headers
from cascade.server.keys import Right

__all__ = ["GuardedAdmin"]

_READING: Final = frozenset({"GET", "HEAD"})


class GuardedAdmin:
    """Let a request through whose key may read, or operate where it is more than reading.

    Paths ``open_to_all`` may be read without a key.
    """

    def __init__(self, app: ASGIApp, access: Access, open_to_all: AbstractSet[str] = frozenset()) -> None:
        self._app = app
        self._access = access
        self._open_to_all = open_to_all

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer 401 or 403, or hand the request on."""
        try:
            if scope["type"] == "http":
                reading = scope["method"] in _READING
                if not (reading and scope["path"] in self._open_to_all):
                    self._access.check(Headers(scope=scope), Right.READ if reading else Right.OPERATE)
        except RequestError as error:
            status = 401 if error.fault is RequestFault.UNAUTHORIZED else 403
            body = orjson.dumps({"error": str(error), "message": str(error), "detail": str(error)})
            await Response(body, status, error_headers(error), JSON)(scope, receive, send)
            return
        await self._app(scope, receive, send)
