"""A proxy before a server that does to connections what faults say."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections import Counter, defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Final

from evals.soak.answers import Answer, Server, spoiled
from evals.soak.faults import Deck, Fault, FaultKind

__all__ = ["NOT_HTTP", "Proxy", "proxy_before"]

NOT_HTTP: Final = (
    b"\x00\x01\x02",
    b"HTTP/9.9 abc\r\n\r\n",
    b"SSH-2.0-x\r\n",
    b"HTTP/1.1 200 \xff\xfe\r\n\r\n",
    b"\r\n" * 40,
)
_LONGEST_SLOW_S: Final = 0.6
_LONGEST_AWAY_S: Final = 0.15
_DRIPS: Final = 20
_ID_LENGTH: Final = 32


class Proxy:
    """Stand before one server. ``met`` holds what the calls of each decision met, ``counts`` how many met each kind."""

    def __init__(self, server: Server, calls: Deck, looks: Deck, canary: str) -> None:
        self._server = server
        self._calls = calls
        self._looks = looks
        self._canary = canary.encode()
        self._open: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._listening: asyncio.Server | None = None
        self.port = 0
        self.met: defaultdict[str, list[FaultKind]] = defaultdict(list)
        self.counts: Counter[FaultKind] = Counter()
        self.calls = 0
        self.whole = False

    @property
    def connections(self) -> int:
        """Return how many connections are open."""
        return len(self._open)

    async def listen(self) -> None:
        """Listen, on the same port each time."""
        self._listening = await asyncio.start_server(self._accept, "127.0.0.1", self.port)
        self.port = self._listening.sockets[0].getsockname()[1]

    async def aclose(self) -> None:
        """End everything."""
        if self._listening is not None:
            self._listening.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._keep(asyncio.create_task(self._serve(reader, writer)))

    def _keep(self, task: asyncio.Task[None]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        try:
            while not writer.is_closing():
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                first, _, rest = head.partition("\r\n")
                method, path, _ = first.split(" ", 2)
                headers = dict(line.lower().split(": ", 1) for line in rest.split("\r\n") if ": " in line)
                body = await reader.readexactly(int(headers.get("content-length", "0")))
                await self._call(method, path, headers, body, reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self._open.discard(writer)
            writer.close()

    async def _call(
        self,
        method: str,
        path: str,
        headers: dict[str, str],
        body: bytes,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        fault: Fault | None = None
        if not self.whole:
            fault = self._calls.deal() if method == "POST" else self._looks.deal()
        self.calls += method == "POST"
        if fault is not None:
            self.counts[fault.kind] += 1
            self.met[headers.get("x-request-id", "")[:_ID_LENGTH]].append(fault.kind)
        answer = await self._server(method, path, headers, body)
        if fault is None:
            await _write(writer, answer)
        else:
            await self._fail(fault, answer, reader, writer)

    async def _fail(  # noqa: C901 - a table
        self, fault: Fault, answer: Answer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        written = _written(answer)
        beginning = written[: max(1, int(len(written) * fault.part))]
        match fault.kind:
            case FaultKind.REFUSE:
                self._keep(asyncio.create_task(self._go_away(_LONGEST_AWAY_S * fault.part)))
            case FaultKind.RESET_BEFORE:
                _reset(writer)
            case FaultKind.RESET_WITHIN:
                writer.write(beginning)
                await writer.drain()
                _reset(writer)
            case FaultKind.CLOSED_WITHIN:
                writer.write(beginning)
                await writer.drain()
                writer.close()
            case FaultKind.STALL:
                await _until_closed(reader, writer)
            case FaultKind.STALL_WITHIN:
                writer.write(beginning)
                await _until_closed(reader, writer)
            case FaultKind.DRIP:
                size = len(written) // _DRIPS + 1
                for start in range(0, len(written), size):
                    writer.write(written[start : start + size])
                    await writer.drain()
                    await asyncio.sleep(_LONGEST_SLOW_S * fault.part / _DRIPS)
            case FaultKind.SLOW:
                await asyncio.sleep(_LONGEST_SLOW_S * fault.part)
                await _write(writer, answer)
            case FaultKind.NOT_HTTP:
                writer.write(NOT_HTTP[fault.variant % len(NOT_HTTP)])
                await writer.drain()
                writer.close()
            case _:
                await _write(writer, spoiled(fault, answer, self._canary))

    async def _go_away(self, seconds: float) -> None:
        """Reset every connection and refuse new ones for some time."""
        if self._listening is None:
            return
        listening, self._listening = self._listening, None
        listening.close()
        for writer in list(self._open):
            _reset(writer)
        await asyncio.sleep(seconds)
        await self.listen()


def _written(answer: Answer) -> bytes:
    headers = {"content-type": "application/json", **answer.headers, "content-length": str(len(answer.body))}
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {answer.status} Whatever\r\n{lines}\r\n".encode("latin-1") + answer.body


async def _write(writer: asyncio.StreamWriter, answer: Answer) -> None:
    writer.write(_written(answer))
    await writer.drain()


def _reset(writer: asyncio.StreamWriter) -> None:
    sock = writer.get_extra_info("socket")
    with suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def _until_closed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Say nothing more until the other side goes away."""
    with suppress(ConnectionError):
        await reader.read()
    writer.close()


@asynccontextmanager
async def proxy_before(server: Server, calls: Deck, looks: Deck, canary: str) -> AsyncIterator[Proxy]:
    """Give a proxy that listens."""
    proxy = Proxy(server, calls, looks, canary)
    await proxy.listen()
    try:
        yield proxy
    finally:
        await proxy.aclose()
