"""Bound what a connection may cost before its request is known: the size of a head and the time it takes."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

__all__ = ["BoundedHead"]

_MOST_HEAD_BYTES: Final = 65_536
_HEAD_SECONDS: Final = 10.0


class BoundedHead(HttpToolsProtocol):
    """Close a connection whose head, request line and headers, is too long or takes too long.

    Neither httptools nor uvicorn bounds either. Bytes are counted by what is read at once, so a
    head that arrives in one piece is bounded by the size of a read, 256 KiB.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._head_bytes = 0
        self._in_head = True
        self._message_ended = False
        self._slow: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._in_head and self._slow is None:
            self._await_head()
        self._message_ended = False
        super().data_received(data)
        if not self._in_head or self._message_ended:  # what was read is mostly the end of the message before
            return
        self._head_bytes += len(data)
        if self._head_bytes > _MOST_HEAD_BYTES and not self.transport.is_closing():
            self.send_400_response("Request head too large.")

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._head_bytes = 0
        self._stop_timer()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._in_head = self._message_ended = True

    def _await_head(self) -> None:
        self._slow = self.loop.call_later(_HEAD_SECONDS, self._close_slow)

    def _close_slow(self) -> None:
        self._slow = None
        if self._in_head and not self.transport.is_closing():
            self.transport.close()

    def _stop_timer(self) -> None:
        if self._slow is not None:
            self._slow.cancel()
            self._slow = None
