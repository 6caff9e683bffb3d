"""The bounds of a connection before its request is known."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, Final

import pytest
import uvicorn
from uvicorn.server import ServerState

from cascade.server.connections import BoundedConnection
from cascade.testing.clock import run_virtual

_REQUEST: Final = b"POST /x HTTP/1.1\r\nhost: h\r\ncontent-length: 4\r\n\r\nbody"


class _Transport(asyncio.Transport):
    """Keep what is written, and whether the connection was closed."""

    def __init__(self) -> None:
        super().__init__({"sockname": ("127.0.0.1", 1), "peername": ("127.0.0.1", 2)})
        self.written = b""
        self.closed = False
        self.unread = 0

    def write(self, data: Any) -> None:
        self.written += bytes(data)

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed

    def get_write_buffer_size(self) -> int:
        return self.unread

    def pause_reading(self) -> None:
        """Read on."""

    def resume_reading(self) -> None:
        """Read on."""


async def _app(scope: Any, receive: Any, send: Any) -> None:
    read = b""
    while (message := await receive()).get("more_body"):
        read += message["body"]
    read += message["body"]
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"%02d" % min(len(read), 99)})


def _connection() -> tuple[BoundedConnection, _Transport]:
    config = uvicorn.Config(
        _app, http=BoundedConnection, ws="none", lifespan="off", log_config=None, timeout_keep_alive=60
    )
    protocol, transport = BoundedConnection(config, ServerState(), {}), _Transport()
    protocol.connection_made(transport)
    return protocol, transport


async def _settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def _pieces(whole: bytes, size: int) -> Iterator[bytes]:
    return (whole[start : start + size] for start in range(0, len(whole), size))


@pytest.mark.parametrize("begun", [b"GET /", b"GET / HTTP/1.1\r\nx: "])
def test_a_head_without_end_is_cut_off(begun: bytes) -> None:
    """A request line or a header that goes on and on is 400 after 64 KiB, and the connection is closed."""

    async def send() -> tuple[int, _Transport]:
        protocol, transport = _connection()
        protocol.data_received(begun)
        sent = 0
        while not transport.closed and sent < 1_000_000:
            protocol.data_received(b"a" * 1000)
            sent += 1000
        protocol.connection_lost(None)
        return sent, transport

    sent, transport = run_virtual(send())
    assert 65_000 < sent < 67_000
    assert transport.written.startswith(b"HTTP/1.1 400 ")


def test_a_head_that_does_not_come_closes_the_connection() -> None:
    """Ten seconds after the connection, or after its first piece, nothing is waited for; trickling does not help."""

    async def wait() -> list[bool]:
        _, silent = _connection()
        protocol, trickling = _connection()
        seen = []
        for piece in _pieces(_REQUEST[:22], 2):
            protocol.data_received(piece)
            seen.append(silent.closed or trickling.closed)
            await asyncio.sleep(0.9)
        await asyncio.sleep(0.2)
        return [any(seen), silent.closed, trickling.closed]

    assert run_virtual(wait()) == [False, True, True]


@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_requests_in_pieces_are_answered_one_after_another(size: int) -> None:
    """A head and a body may come in any pieces, and the next request on the connection is bounded anew."""

    async def ask() -> _Transport:
        protocol, transport = _connection()
        for _ in range(3):
            for piece in _pieces(_REQUEST, size):
                protocol.data_received(piece)
            await _settle()
        await asyncio.sleep(15)
        assert not transport.closed  # idle between requests: the time of keep-alive counts
        protocol.connection_lost(None)
        return transport

    assert run_virtual(ask()).written.count(b"\r\n\r\n04") == 3


def test_a_long_body_is_no_head() -> None:
    """Bytes of a body are not counted, however large its pieces are."""

    async def ask() -> _Transport:
        protocol, transport = _connection()
        protocol.data_received(b"POST /x HTTP/1.1\r\nhost: h\r\ncontent-length: 600000\r\n\r\n")
        for _ in range(3):
            protocol.data_received(b"a" * 200_000)
            await _settle()
        protocol.connection_lost(None)
        return transport

    assert run_virtual(ask()).written.endswith(b"\r\n\r\n99")


def test_an_answer_is_cut_off_where_it_is_hardly_read() -> None:
    """Who reads 64 KiB in 30 seconds goes on, however long it takes; who reads less is let go of."""

    async def read(pieces: int) -> float:
        protocol, transport = _connection()
        protocol.data_received(_REQUEST)
        await _settle()
        transport.unread = 2_000_000
        protocol.pause_writing()
        began = asyncio.get_running_loop().time()
        while not transport.closed and asyncio.get_running_loop().time() - began < 50:
            await asyncio.sleep(10)
            transport.unread -= pieces
        protocol.connection_lost(None)
        return asyncio.get_running_loop().time() - began

    assert run_virtual(read(40_000)) == 50
    assert run_virtual(read(20_000)) <= 40


def test_an_answer_that_was_read_stops_the_clock() -> None:
    """The connection is kept for the next request."""

    async def read() -> bool:
        protocol, transport = _connection()
        for piece in _pieces(_REQUEST, 10_000):
            protocol.data_received(piece)
        await _settle()
        transport.unread = 100_000
        protocol.pause_writing()
        await asyncio.sleep(20)
        protocol.resume_writing()
        await asyncio.sleep(20)
        closed = transport.closed
        protocol.connection_lost(None)
        return closed

    assert run_virtual(read()) is False
