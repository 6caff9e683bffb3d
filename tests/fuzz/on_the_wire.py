"""A connection of the public listener without a socket: bytes in, bytes out, and every fault of its own shown."""

from __future__ import annotations

import asyncio
from typing import Any

import uvicorn
from uvicorn.server import ServerState

from cascade.server.connections import BoundedConnection

__all__ = ["read_off_the_wire"]


class _Transport(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__({"sockname": ("127.0.0.1", 1), "peername": ("127.0.0.1", 2)})
        self.written = b""
        self.closed = False

    def write(self, data: Any) -> None:
        self.written += bytes(data)

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed

    def pause_reading(self) -> None:
        """Read on."""

    def resume_reading(self) -> None:
        """Read on."""


async def read_off_the_wire(data: bytes) -> bytes:
    """Give a connection some bytes in two pieces and then its end; return what it wrote."""
    config = uvicorn.Config(_app, http=BoundedConnection, ws="none", lifespan="off", log_config=None)
    protocol, transport = BoundedConnection(config, ServerState(), {}), _Transport()
    protocol.connection_made(transport)
    for piece in (data[: len(data) // 2], data[len(data) // 2 :]):
        if not transport.closed:
            protocol.data_received(piece)
        await asyncio.sleep(0)
    for _ in range(5):
        await asyncio.sleep(0)
    protocol.connection_lost(None)
    for _ in range(5):
        await asyncio.sleep(0)
    assert not transport.written or transport.written.startswith(b"HTTP/1.1 ")
    return transport.written


async def _app(scope: Any, receive: Any, send: Any) -> None:
    assert scope["type"] == "http"
    while (message := await receive())["type"] == "http.request" and message.get("more_body"):
        assert isinstance(message["body"], bytes)
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
    await send({"type": "http.response.body", "body": b""})
