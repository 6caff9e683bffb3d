"""Speak ASGI to an application as a slow connection does."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import httpx
from starlette.types import ASGIApp

__all__ = ["post_slowly", "scope_of"]


def scope_of(path: str, headers: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return the scope of a POST."""
    return {
        "type": "http",
        "method": "POST",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [(name.encode(), value.encode()) for name, value in (headers or {}).items()],
        "http_version": "1.1",
        "root_path": "",
    }


async def post_slowly(
    app: ASGIApp,
    path: str,
    begun: bytes,
    headers: Mapping[str, str] | None = None,
    *,
    rest: tuple[float, bytes] | None = None,
) -> httpx.Response:
    """Post the beginning of a body, and its rest after some seconds or never; return the answer."""
    parts = [{"type": "http.request", "body": begun, "more_body": True}]
    sent: list[Any] = []

    async def receive() -> Any:
        nonlocal rest
        if parts:
            return parts.pop()
        if rest is None:
            return await asyncio.get_running_loop().create_future()
        (seconds, body), rest = rest, None
        await asyncio.sleep(seconds)
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    await app(scope_of(path, headers), receive, send)
    start, *bodies = sent
    return httpx.Response(
        start["status"], headers=start["headers"], content=b"".join(each.get("body", b"") for each in bodies)
    )
