"""Scripted upstreams that batch as a GPU does: a small one that speaks TEI's format and a large one that speaks vLLM's.

    python -m evals.bench.batching SMALL_PORT LARGE_PORT [--keeps]

A batch takes a time of its own and some for each pair in it; what comes meanwhile waits. What is queued is dropped when its client
goes away (with ``--keeps`` it is scored all the same, as Infinity does). Scores stand in the documents: see `scores_in`.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast

import httptools
import orjson
import uvloop

__all__ = ["LARGE", "SMALL", "Batches", "Server", "main", "scores_in"]


@dataclass(frozen=True, slots=True)
class Batches:
    """How a server batches: ``most`` pairs, ``base_ms`` for a batch and ``pair_ms`` for each pair of it."""

    base_ms: float
    pair_ms: float
    most: int

    def ms(self, pairs: int) -> float:
        """Return how long a batch of so many pairs takes."""
        return self.base_ms + self.pair_ms * pairs

    @property
    def pairs_a_second(self) -> float:
        """Return the most that it scores: in full batches."""
        return self.most / self.ms(self.most) * 1000


SMALL: Final = Batches(8.0, 0.15, 200)
LARGE: Final = Batches(20.0, 1.5, 64)
"""The servers of evals/overload_simulation.md."""


def scores_in(text: str) -> tuple[float, float]:
    """Return what the small and the large server score a document: its first two words, in hundredths.

    Others, like those of the sidecar's own probe, have 0: without an answer the probe would count as a failure.
    """
    match text.split(" ", 2):
        case [small, large, _] if small.lstrip("-").isdecimal() and large.lstrip("-").isdecimal():
            return int(small) / 100, int(large) / 100
        case _:
            return 0.0, 0.0


@dataclass(slots=True, eq=False)
class _Call:
    """A call that waits: the pairs of it that are not in a batch yet, and when it came and was begun."""

    pairs: int
    came: float
    caller: _Caller
    answer: bytes
    begun: float = 0.0


@dataclass(slots=True)
class Server:
    """One server: its queue, and the task that scores it batch by batch."""

    batches: Batches
    large: bool
    keeps: bool
    queue: deque[_Call] = field(default_factory=deque)
    running: int = 0
    came: asyncio.Event = field(default_factory=asyncio.Event)

    async def work(self) -> None:
        """Score batches for ever."""
        while True:
            await self.came.wait()
            taken, done = 0, []
            now = time.perf_counter()
            while self.queue and taken < self.batches.most:
                call = self.queue[0]
                call.begun = call.begun or now
                share = min(call.pairs, self.batches.most - taken)
                call.pairs -= share
                taken += share
                if not call.pairs:
                    done.append(self.queue.popleft())
            if not taken:
                self.came.clear()
                continue
            self.running = len(done)
            await asyncio.sleep(self.batches.ms(taken) / 1000 - (time.perf_counter() - now))
            now = time.perf_counter()
            for call in done:
                waited = max(0, int((call.begun - call.came) * 1000))
                times = b"x-queue-time: %d\r\nx-inference-time: %d\r\n" % (waited, int((now - call.begun) * 1000))
                call.caller.send(call.answer, b"" if self.large else times)
            self.running = 0

    def left(self, caller: _Caller) -> None:
        """Drop what is queued of a client that went away."""
        if not self.keeps:
            self.queue = deque(call for call in self.queue if call.caller is not caller)

    def score(self, body: bytes, caller: _Caller) -> None:
        """Queue the pairs of a call."""
        asked = orjson.loads(body)
        texts = asked["text_2"] if self.large else asked["texts"]
        scores = [scores_in(text)[self.large] for text in texts]
        self.queue.append(_Call(len(scores), time.perf_counter(), caller, self._answer(scores)))
        self.came.set()

    def _answer(self, scores: Sequence[float]) -> bytes:
        if not self.large:
            ranked = sorted(range(len(scores)), key=lambda index: -scores[index])
            return orjson.dumps([{"index": index, "score": scores[index]} for index in ranked])
        data = [{"index": index, "object": "score", "score": score} for index, score in enumerate(scores)]
        usage = {"prompt_tokens": 40 * len(scores), "total_tokens": 40 * len(scores)}
        return orjson.dumps(
            {"id": "s", "object": "list", "created": 0, "model": "scripted", "data": data, "usage": usage}
        )

    def tell(self, path: bytes) -> bytes | None:
        """Answer what is asked of the server itself, None where the path is unknown."""
        told: dict[bytes, Any] = {
            b"/info": {"model_id": "scripted", "max_client_batch_size": 256, "max_input_length": 512},
            b"/v1/models": {"object": "list", "data": [{"id": "scripted", "max_model_len": 8192}]},
            b"/version": {"version": "0"},
            b"/health": {},
        }
        if path == b"/metrics":
            if self.large:
                lines = f"vllm:num_requests_waiting {len(self.queue)}\nvllm:num_requests_running {self.running}\n"
            else:
                lines = f"te_queue_size {len(self.queue)}\n"
            return lines.encode()
        return orjson.dumps(told[path]) if path in told and (path != b"/info" or not self.large) else None


class _Caller(asyncio.Protocol):
    """One connection, one request at a time."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._parser = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport | None = None
        self._url = b""
        self._body = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._server.left(self)

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_message_begin(self) -> None:
        self._url = b""
        self._body.clear()

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        if self._parser.get_method() == b"POST":
            self._server.score(bytes(self._body), self)
            return
        told = self._server.tell(self._url)
        self.send(told or b"{}", status=b"200 OK" if told is not None else b"404 Not Found")

    def send(self, body: bytes, headers: bytes = b"", *, status: bytes = b"200 OK") -> None:
        """Answer, where the client is still there."""
        if self._transport is not None:
            head = b"HTTP/1.1 %s\r\ncontent-type: application/json\r\n%scontent-length: %d\r\n\r\n"
            self._transport.write(head % (status, headers, len(body)) + body)


async def _serve(ports: Sequence[int], *, keeps: bool) -> None:
    loop = asyncio.get_running_loop()
    tasks = []
    for port, batches, large in zip(ports, (SMALL, LARGE), (False, True), strict=True):
        server = Server(batches, large, keeps)
        tasks.append(loop.create_task(server.work()))
        await loop.create_server(lambda server=server: _Caller(server), "127.0.0.1", port, backlog=2048)  # type: ignore[misc]
    await asyncio.gather(*tasks)


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve both until the process is ended."""
    parser = argparse.ArgumentParser(prog="python -m evals.bench.batching", description=__doc__)
    parser.add_argument("ports", type=int, nargs=2)
    parser.add_argument("--keeps", action="store_true")
    given = parser.parse_args(arguments)
    uvloop.run(_serve(given.ports, keeps=given.keeps))


if __name__ == "__main__":
    main()
