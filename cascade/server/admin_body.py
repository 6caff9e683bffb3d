"""Read what an operator sends to the admin listener, and refuse in its one shape of error."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from cascade.server.http import JSON

__all__ = ["body_of", "from_a_page", "refused"]


async def body_of(http: Request, *, most_bytes: int, most_seconds: float) -> bytes | Response:
    """Return the body, or what is answered in place of it: one that is too large, too slow, or whose sender went away."""
    raw = bytearray()
    try:
        async with asyncio.timeout(most_seconds):
            async for part in http.stream():
                raw += part
                if len(raw) > most_bytes:
                    return refused(413, f"at most {most_bytes} bytes are accepted")
    except ClientDisconnect:
        return Response(status_code=499)  # nobody receives it
    except TimeoutError:
        return refused(408, f"the body had not arrived after {most_seconds:g} seconds")
    return bytes(raw)


def from_a_page(http: Request) -> Response | None:
    """Refuse what comes by way of a web page: whoever can open one could then change things at a listener without keys.

    A browser names its page in every request that changes something.
    """
    if "origin" in http.headers or "sec-fetch-site" in http.headers:
        return refused(403, "a browser may look, not change anything")
    return None


def refused(status: int, rule: str, **more: Any) -> Response:
    """Return an error as all listeners write it; ``more`` are fields beside."""
    return Response(orjson.dumps({"error": rule, "message": rule, "detail": rule, **more}), status, media_type=JSON)
