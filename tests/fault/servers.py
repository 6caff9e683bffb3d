"""Servers on loopback that go wrong byte by byte."""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import orjson

__all__ = ["Connection", "RawServer", "answering", "cutting", "raw_server", "resetting", "saying", "silent"]


@dataclass
class Connection:
    """One accepted connection, after a request was read in full."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    body: bytes


Behaviour = Callable[["RawServer", Connection], Awaitable[None]]


@dataclass
class RawServer:
    """Answer TEI's requests, except that ``script`` holds what happens to the next ones instead.

    ``port`` is bound on loopback. ``came`` is set by each request, ``closed`` when a client closes a connection that
    ``silent`` holds.
    """

    port: int = 0
    script: list[Behaviour] = field(default_factory=list)
    requests: list[bytes] = field(default_factory=list)
    heads: list[bytes] = field(default_factory=list)
    connections: int = 0
    came: asyncio.Event = field(default_factory=asyncio.Event)
    closed: asyncio.Event = field(default_factory=asyncio.Event)

    async def seen(self, requests: int) -> None:
        """Wait until so many requests have come."""
        while len(self.requests) < requests:
            self.came.clear()
            await self.came.wait()

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection until its client closes it or the script ends it."""
        self.connections += 1
        try:
            while not writer.is_closing():
                head = await reader.readuntil(b"\r\n\r\n")
                body = await reader.readexactly(_length(head))
                self.heads.append(head)
                self.requests.append(body)
                self.came.set()
                behaviour = self.script.pop(0) if self.script else answering
                await behaviour(self, Connection(reader, writer, body))
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError, ssl.SSLError):
            pass
        finally:
            writer.close()


def _length(head: bytes) -> int:
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return int(line.partition(b":")[2])
    return 0


async def answering(server: RawServer, connection: Connection) -> None:
    """Answer as TEI would, each score the length of its text."""
    texts = orjson.loads(connection.body)["texts"]
    body = orjson.dumps([{"index": index, "score": len(text)} for index, text in enumerate(texts)])
    connection.writer.write(
        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body)
    )


def saying(answer: bytes, *, echo: bool = False, keep: bool = False) -> Behaviour:
    """Write these bytes, with ``echo`` the request's body after them, and close unless told to ``keep``."""

    async def say(server: RawServer, connection: Connection) -> None:
        connection.writer.write(answer + (connection.body if echo else b""))
        await connection.writer.drain()
        if not keep:
            connection.writer.close()

    return say


def cutting(answer: bytes) -> Behaviour:
    """Write these bytes and reset the connection."""

    async def cut(server: RawServer, connection: Connection) -> None:
        connection.writer.write(answer)
        await connection.writer.drain()
        await resetting(server, connection)

    return cut


async def resetting(server: RawServer, connection: Connection) -> None:
    """Reset the connection (RST, not FIN)."""
    sock = connection.writer.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.writer.transport.abort()


async def silent(server: RawServer, connection: Connection) -> None:
    """Never answer; wait until the client goes away."""
    try:
        await connection.reader.read()
    finally:
        server.closed.set()
    connection.writer.close()


@asynccontextmanager
async def raw_server(
    *script: Behaviour, port: int = 0, tls: ssl.SSLContext | None = None, family: str = "127.0.0.1"
) -> AsyncIterator[RawServer]:
    """Give a listening server that is closed with its connections at the end."""
    server = RawServer(script=list(script))
    tasks: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(server.handle(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    listening = await asyncio.start_server(accept, family, port, ssl=tls)
    server.port = listening.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listening.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await listening.wait_closed()
