"""Bound what a connection may cost beyond its requests: heads, what is no body, answers nobody reads, and their number."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

__all__ = ["BoundedConnection", "ConnectionBounds", "Connections", "WhyRefused"]

WhyRefused = Literal["all", "client"]
"""Why a connection is refused: too many of all, or of one client's address."""

_MOST_PIPELINED: Final = 64
_LEAST_READ_BYTES: Final = 65_536
"""What must be read of a long answer within ``unread_seconds``, again and again."""
_BUSY: Final = b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


@dataclass(frozen=True, slots=True)
class ConnectionBounds:
    """What one connection may cost, and how many there may be, of all and of one client's address; None: no bound."""

    most: int | None = None
    most_of_a_client: int | None = None
    head_bytes: int = 65_536
    fields: int = 128
    handshake_seconds: float = 10.0
    goodbye_seconds: float = 2.0
    head_seconds: float = 10.0
    unread_seconds: float = 30.0


class Connections:
    """Count the connections of a listener by client's address. ``refused`` is told of those that are too many."""

    def __init__(
        self, bounds: ConnectionBounds | None = None, refused: Callable[[WhyRefused], None] = lambda why: None
    ) -> None:
        self.bounds = bounds or ConnectionBounds()
        self._refused = refused
        self._by_client: Counter[str] = Counter()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def enter(self, client: str) -> bool:
        """Count a connection; False where it is one too many."""
        bounds = self.bounds
        why: WhyRefused | None = None
        if bounds.most is not None and self._count >= bounds.most:
            why = "all"
        elif bounds.most_of_a_client is not None and self._by_client[client] >= bounds.most_of_a_client:
            why = "client"
        if why is not None:
            self._refused(why)
            return False
        self._count += 1
        self._by_client[client] += 1
        return True

    def leave(self, client: str) -> None:
        """Count no more a connection that had entered."""
        self._count -= 1
        self._by_client[client] -= 1
        if not self._by_client[client]:
            del self._by_client[client]


class _TooMuch(Exception):
    """End the parsing of a request; the parser makes an error of its own of it."""


class BoundedConnection(HttpToolsProtocol):
    """Close a connection that costs more than its bounds allow.

    Neither httptools nor uvicorn bounds a head, a chunk's extension, trailers, or the time in which an answer is read.
    What goes on for ``head_bytes`` without the end of a head, a piece of a body or the end of a message is cut, and so is a
    URL that is longer than that with all its fields.
    """

    def __init__(self, *args: Any, connections: Connections | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._all = Connections() if connections is None else connections
        self._bounds = self._all.bounds
        self._address: str | None = None
        self._went_on = False
        self._standing_bytes = 0
        self._field_bytes = 0
        self._in_head = True
        self._slow: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None
        self._unread_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        address = self.client[0] if self.client else ""
        if self._all.enter(address):
            self._address = address
            self._await_head()
        else:
            transport.write(_BUSY)
            transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._address is not None:
            self._all.leave(self._address)
            self._address = None
        self._stop_timer()
        self._stop_unread()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        if self._in_head and self._slow is None:
            self._await_head()
        self._went_on = False
        super().data_received(data)
        self._standing_bytes = 0 if self._went_on else self._standing_bytes + len(data)
        if self._standing_bytes > self._bounds.head_bytes and not self.transport.is_closing():
            self.send_400_response("Request head too large.")

    def on_message_begin(self) -> None:
        self._field_bytes = 0
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        self._take(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._take(len(name) + len(value))
        if len(self.headers) >= self._bounds.fields:
            raise _TooMuch
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._went_on = True
        self._stop_timer()
        if len(self.pipeline) >= _MOST_PIPELINED:
            raise _TooMuch
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._went_on = True
        super().on_body(body)

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._in_head = self._went_on = True

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._unread is None:
            self._await_reader()

    def resume_writing(self) -> None:
        self._stop_unread()
        super().resume_writing()

    def _take(self, count: int) -> None:
        self._field_bytes += count
        if self._field_bytes > self._bounds.head_bytes:
            raise _TooMuch

    def _await_head(self) -> None:
        self._slow = self.loop.call_later(self._bounds.head_seconds, self._close_slow)

    def _close_slow(self) -> None:
        self._slow = None
        if self._in_head and not self.transport.is_closing():
            self.transport.close()

    def _await_reader(self) -> None:
        self._unread_bytes = self.transport.get_write_buffer_size()
        self._unread = self.loop.call_later(self._bounds.unread_seconds, self._look_at_reader)

    def _look_at_reader(self) -> None:
        """Let go of an answer that nobody reads, or hardly: to close would wait for all of it to be read."""
        if self._unread_bytes - self.transport.get_write_buffer_size() < _LEAST_READ_BYTES:
            self._unread = None
            self.transport.abort()
        else:
            self._await_reader()

    def _stop_timer(self) -> None:
        if self._slow is not None:
            self._slow.cancel()
            self._slow = None

    def _stop_unread(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None
