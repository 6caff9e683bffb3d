"""Clients that ask without a pause for each other, check each answer, and now and then leave."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

import aiohttp

from evals.soak.faults import FaultKind
from evals.soak.process import Stall
from evals.soak.requests import CANARY, Asked, Judged, draw_request, judge

__all__ = ["Clients", "Seen"]

_PATIENCE_S: Final = 10.0
_LAG_STEP_S: Final = 0.01
_LEAST_LAG_MS: Final = 5.0


@dataclass(frozen=True, slots=True)
class Seen:
    """One answer, asked for and read at seconds of the monotonic clock.

    ``over_ms`` is how long after its deadline it came, below 0 for one in time.
    """

    judged: Judged
    began_s: float
    ended_s: float
    over_ms: float


@dataclass
class Clients:
    """Ask at a rate, whatever becomes of the answers. Requests and leaving are drawn from a seed."""

    url: str
    seed: str
    servers: Sequence[str]
    leave_share: float = 0.0
    observe: bool = False
    queries: int = 1000
    seen: list[Seen] = field(default_factory=list)
    left: Counter[FaultKind] = field(default_factory=Counter)
    lost: Counter[str] = field(default_factory=Counter)
    leaks: int = 0
    breaches: Counter[str] = field(default_factory=Counter)
    examples: defaultdict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    lags: list[Stall] = field(default_factory=list)

    async def ask(self, rate: float, goes_on: Callable[[], bool]) -> None:
        """Send requests at a rate until told that it does not go on, and wait for what is under way."""
        drawn = random.Random(self.seed)  # noqa: S311 - no secret
        connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=2)
        timeout = aiohttp.ClientTimeout(total=_PATIENCE_S)
        watching = asyncio.create_task(self._watch_lag())
        async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session, asyncio.TaskGroup() as group:
            due = time.monotonic()
            while goes_on():
                due += drawn.expovariate(rate)
                await asyncio.sleep(max(0.0, due - time.monotonic()))
                asked = draw_request(drawn, queries=self.queries)
                leaves, part = drawn.random() < self.leave_share, drawn.random()
                if leaves and part < 0.25:
                    group.create_task(self._leave_in_body(asked, part * 4))
                elif leaves:
                    group.create_task(self._leave(session, asked, part))
                else:
                    group.create_task(self._ask(session, asked))
        watching.cancel()

    async def _ask(self, session: aiohttp.ClientSession, asked: Asked) -> None:
        began = time.monotonic()
        try:
            async with session.post(self.url + asked.path, data=asked.body, headers=asked.headers) as answer:
                body = await answer.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            self.lost[type(error).__name__] += 1
            return
        ended = time.monotonic()
        told = {name.lower(): value for name, value in answer.headers.items()}
        judged = judge(asked, answer.status, told, body, servers=self.servers, observe=self.observe)
        self.leaks += CANARY.encode() in body or CANARY in repr(told)
        self.seen.append(Seen(judged, began, ended, (ended - began) * 1000 - asked.deadline_ms))
        for breach in judged.breaches:
            self.breaches[breach] += 1
            if len(self.examples[breach]) < 5:
                self.examples[breach].append(f"{asked.dialect} {judged.stage} {judged.degraded} {judged.decision_id}")

    async def _leave(self, session: aiohttp.ClientSession, asked: Asked, part: float) -> None:
        """Close the connection before the answer comes, or a little after it."""
        self.left[FaultKind.LEAVE] += 1
        with suppress(TimeoutError, aiohttp.ClientError, OSError):
            async with asyncio.timeout(part * 0.2), session.post(self.url + asked.path, data=asked.body) as answer:
                await answer.read()

    async def _leave_in_body(self, asked: Asked, part: float) -> None:
        self.left[FaultKind.LEAVE_IN_BODY] += 1
        address = urlsplit(self.url)
        with suppress(OSError):
            _, writer = await asyncio.open_connection(address.hostname, address.port)
            head = (
                f"POST {asked.path} HTTP/1.1\r\nhost: {address.hostname}\r\ncontent-length: {len(asked.body)}\r\n\r\n"
            )
            writer.write(head.encode() + asked.body[: int(part * len(asked.body))])
            await writer.drain()
            await asyncio.sleep(part * 0.1)
            writer.transport.abort()

    async def _watch_lag(self) -> None:
        """Note how late this loop itself is: an answer read late is not one that came late."""
        while True:
            before = time.monotonic()
            await asyncio.sleep(_LAG_STEP_S)
            lag_ms = (time.monotonic() - before - _LAG_STEP_S) * 1000
            if lag_ms > _LEAST_LAG_MS:
                self.lags.append(Stall(before, lag_ms, 0.0))
