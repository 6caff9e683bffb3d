"""A server that batches like a GPU, and requests with a deadline before it: what a limit on texts in flight is worth."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field
from typing import Final, Protocol

from cascade.guard.adaptive_limit import AdaptiveLimit
from cascade.guard.answering import Answering
from cascade.guard.expected_ms import ExpectedMs, Fit
from cascade.guard.inflight import TextLimiter
from cascade.testing.clock import run_virtual

__all__ = ["Adaptive", "BatchingServer", "Fixed", "Limit", "Load", "goodput"]

_TOKENS: Final = 100
_CHUNK: Final = 32
_SIZES: Final = (20, 50, 50, 100)


@dataclass
class BatchingServer:
    """Take ``batch`` texts at a time, each batch ``base_ms`` and ``text_ms`` for each text.

    ``frees`` tells whether what is queued is dropped when its client goes away.
    """

    base_ms: float
    text_ms: float
    batch: int
    frees: bool = True
    queue: list[list[object]] = field(default_factory=list)
    busy: bool = False

    @property
    def texts_a_second(self) -> float:
        """Return the most texts that it scores in a second."""
        return self.batch / (self.base_ms + self.text_ms * self.batch) * 1000

    async def call(self, texts: int) -> None:
        """Score so many texts."""
        done = asyncio.get_running_loop().create_future()
        item: list[object] = [texts, done]
        self.queue.append(item)
        if not self.busy:
            self.busy = True
            self.worker = asyncio.create_task(self._work())
        try:
            await done
        except asyncio.CancelledError:
            if self.frees and item in self.queue:
                self.queue.remove(item)
            raise

    async def _work(self) -> None:
        while self.queue:
            room, done = self.batch, []
            while self.queue and room:
                item = self.queue[0]
                assert isinstance(item[0], int)
                taken = min(room, item[0])
                item[0] -= taken
                room -= taken
                if not item[0]:
                    done.append(self.queue.pop(0)[1])
            await asyncio.sleep((self.base_ms + self.text_ms * (self.batch - room)) / 1000)
            for future in done:
                assert isinstance(future, asyncio.Future)
                if not future.done():
                    future.set_result(None)
        self.busy = False


class Limit(Protocol):
    """What is told of calls, and says how many texts may be in flight."""

    @property
    def texts(self) -> int: ...

    def answered(self, *, texts: int, tokens: int, ms: float, in_flight: int, had_ms: float) -> None: ...

    def is_slow(self, *, tokens: int, ms: float) -> bool: ...

    def dropped(self, began: float, now: float, carried_texts: int | None = None) -> None: ...


@dataclass
class Fixed:
    """A limit that learns nothing."""

    texts: int = 1024

    def answered(self, *, texts: int, tokens: int, ms: float, in_flight: int, had_ms: float) -> None:
        """Learn nothing."""

    def is_slow(self, *, tokens: int, ms: float) -> bool:
        """Know nothing."""
        return False

    def dropped(self, began: float, now: float, carried_texts: int | None = None) -> None:
        """Learn nothing."""


def Adaptive() -> AdaptiveLimit:  # noqa: N802 - stands beside Fixed
    """Return the limit that ships, as a stage makes it."""
    return AdaptiveLimit(most_texts=1024, most_tokens=10**9, call_texts=_CHUNK, call_tokens=_CHUNK * _TOKENS)


@dataclass(frozen=True)
class Load:
    """Requests of 20, 50 or 100 texts at ``times`` the server's capacity, each with ``deadline_ms``."""

    times: float
    deadline_ms: float
    seconds: float
    seed: int = 1


class _TooLate(Exception):
    """Say that a call got room too late."""


def goodput(server: BatchingServer, limit: Limit, load: Load, *, checked: bool = True) -> float:
    """Return the texts of requests that were scored whole in time, as a share of what the server can score.

    ``checked``: a call that got room is sent only where the time left carries what a call takes.
    """
    return run_virtual(_play(server, limit, load, checked=checked))


async def _play(server: BatchingServer, limit: Limit, load: Load, *, checked: bool) -> float:
    loop, drawn = asyncio.get_running_loop(), random.Random(load.seed)  # noqa: S311 - drawn load
    room, expected, answering = TextLimiter(limit.texts), ExpectedMs(loop.time), Answering()
    scored = 0

    async def call(texts: int, end: float) -> None:
        asked = loop.time()
        async with room.hold(texts):
            began = loop.time()
            fit = expected.judge(texts * _TOKENS, (end - began) * 1000) if checked else Fit.FITS
            if fit is Fit.TOO_LONG:
                raise _TooLate
            leaving = answering.leaves(began)
            try:
                await server.call(texts)
            except asyncio.CancelledError:
                if loop.time() >= end - 1e-9:
                    now, ms = loop.time(), (loop.time() - began) * 1000
                    expected.gave_up(texts * _TOKENS, ms, fit, waited_ms=(began - asked) * 1000)
                    carried: int | None = None
                    if answering.is_queued(leaving, now) and limit.is_slow(tokens=texts * _TOKENS, ms=ms):
                        carried = answering.texts_since(leaving)
                        answering.fell_behind(now)
                    limit.dropped(began, now, carried)
                    room.limit = limit.texts
                raise
            ms = (loop.time() - began) * 1000
            answering.answered(leaving, texts, loop.time())
            expected.ended(texts * _TOKENS, ms, fit)
            had_ms = (end - asked) * 1000
            limit.answered(texts=texts, tokens=texts * _TOKENS, ms=ms, in_flight=room.in_flight, had_ms=had_ms)
            room.limit = limit.texts

    async def request() -> None:
        nonlocal scored
        texts, end = drawn.choice(_SIZES), loop.time() + load.deadline_ms / 1000
        chunks = [min(_CHUNK, texts - start) for start in range(0, texts, _CHUNK)]
        try:
            async with asyncio.timeout_at(end), asyncio.TaskGroup() as group:
                for chunk in chunks:
                    group.create_task(call(chunk, end))
                late = False
        except* (_TooLate, TimeoutError):
            late = True
        scored += 0 if late else texts

    rate = server.texts_a_second * load.times / (sum(_SIZES) / len(_SIZES))
    end = loop.time() + load.seconds
    requests = []
    while loop.time() < end:
        await asyncio.sleep(drawn.expovariate(rate))
        requests.append(asyncio.create_task(request()))
    await asyncio.gather(*requests)
    return scored / load.seconds / server.texts_a_second
