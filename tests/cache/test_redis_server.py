"""Scores in a real Redis: whatever becomes of it, it costs misses."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import uvloop

from cascade.cache.redis import RedisEvents, RedisStore, connect
from cascade.cache.store import Found, WriteDrop
from cascade.guard.deadline import Deadline
from cascade.types import BreakerState
from tests.cache.arrange import SECRET, Cached, arranged, cache_of, keys_of
from tests.cache.redis_server import PASSWORD, RedisServer

_LONG_MS = 10_000.0
"""Long enough on any machine."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    """Run a Redis, and end it."""
    running = RedisServer(tmp_path)
    running.start()
    try:
        yield running
    finally:
        running.kill()


class _Kept:
    """A store of one replica, and what it told."""

    def __init__(self, url: str, *, most_ms: float = _LONG_MS, secret: bytes = SECRET, ttl_s: float = 60.0) -> None:
        self.dropped: Counter[WriteDrop] = Counter()
        self.states: list[tuple[BreakerState, str | None]] = []
        self.client = connect(url)
        self.store = RedisStore(
            self.client,
            secret,
            ttl_s=ttl_s,
            most_ms=most_ms,
            most_waiting=1000,
            clock=time.monotonic,
            events=RedisEvents(self._drop, lambda state, why: self.states.append((state, why))),
        )

    def _drop(self, why: WriteDrop, count: int) -> None:
        self.dropped[why] += count

    async def get(self, *places: int) -> Found:
        """Look some of ten keys up."""
        keys = keys_of(10)
        return await self.store.get([keys[place] for place in places], Deadline.after_ms(60_000, time.monotonic))

    async def put(self, *places: int) -> None:
        """Keep scores, and wait until they are written."""

        async def are_found() -> bool:
            return len((await self.get(*places)).scores) == len(places)

        self.store.put(_named(*places))
        await _eventually(are_found)

    async def until_well(self) -> Found:
        """Return what is found of the first key, once lookups go well."""

        async def found() -> Found | None:
            told = await self.get(0)
            return None if told.faults else told

        told: Found = await _eventually(found)
        return told

    async def raw(self, *command: Any) -> Any:
        """Ask the Redis itself."""
        return await self.client.execute_command(*command)


async def _eventually(ask: Callable[[], Awaitable[Any]]) -> Any:
    """Ask again and again, until what comes is true; return that."""
    for _ in range(3000):
        if told := await ask():
            return told
        await asyncio.sleep(0.01)
    pytest.fail("it never came to be")


@asynccontextmanager
async def _open(url: str, **fields: Any) -> AsyncIterator[_Kept]:
    kept = _Kept(url, **fields)
    await kept.store.start()
    try:
        yield kept
    finally:
        await kept.store.aclose()


def _named(*places: int) -> dict[bytes, float]:
    keys = keys_of(10)
    return {keys[place]: place + 0.5 for place in places}


async def test_replicas_of_one_secret_share_what_they_score(server: RedisServer) -> None:
    """One of another secret finds nothing, in another place under the same key neither."""
    async with _open(server.url) as one, _open(server.url) as two, _open(server.url, secret=b"x" * 16) as other:
        await one.put(0, 1)
        assert await two.get(0, 1, 2) == Found(_named(0, 1))
        assert await other.get(0, 1) == Found({}, faults=2)


async def test_what_is_kept_has_a_time_to_live_and_no_text(server: RedisServer) -> None:
    """All that stands in the Redis is a key of 26 bytes and a value of 17."""
    async with _open(server.url, ttl_s=30.0) as kept:
        stage = arranged(cache=cache_of(kept.store))
        await stage.score("a kingfisher dives", query="which bird dives")
        (key,) = await _eventually(lambda: kept.raw("KEYS", "*"))
        value = await kept.raw("GET", key)
        assert (len(key), len(value)) == (26, 17)
        assert b"kingfisher" not in key + value
        assert 0 < await kept.raw("PTTL", key) <= 30_000


async def test_a_flushed_redis_costs_misses(server: RedisServer) -> None:
    """No fault: it is well, and holds nothing."""
    async with _open(server.url) as kept:
        await kept.put(0)
        await kept.raw("FLUSHALL")
        assert await kept.get(0) == Found({})
        await kept.put(0)


async def test_a_redis_that_was_restarted_is_asked_again(server: RedisServer) -> None:
    """Connections of before are lost: those lookups are faults; then it is used as before, and holds nothing."""
    async with _open(server.url) as kept:
        await kept.put(0)
        server.kill()
        assert await kept.get(0) == Found({}, faults=1)
        server.start()
        assert await kept.until_well() == Found({})
        await kept.put(0, 1)


async def test_a_redis_that_is_not_there_at_the_start_is_found_later(tmp_path: Path) -> None:
    """Nothing waits for it to come."""
    server = RedisServer(tmp_path)
    async with _open(server.url) as kept:
        for _ in range(3):
            assert await kept.get(0) == Found({}, faults=1)
        assert kept.states[0] == (BreakerState.OPEN, "ConnectionError")
        kept.store.put(_named(0))
        assert kept.dropped == {WriteDrop.FAULT: 1}
        server.start()
        try:
            await kept.until_well()
            await kept.put(0)
        finally:
            server.kill()


async def test_a_redis_that_hangs_costs_three_waits_until_it_answers_again(server: RedisServer) -> None:
    """Its connections stay open and nothing is answered; when it goes on, so does the cache."""
    async with _open(server.url, most_ms=50.0) as kept:
        await kept.until_well()
        server.pause()
        try:
            for _ in range(20):
                assert await kept.get(0) == Found({}, faults=1)
                if kept.store.told()["breaker"] is BreakerState.OPEN:
                    break
            assert (BreakerState.OPEN, "slow") in kept.states
        finally:
            server.resume()
        await kept.until_well()


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_a_process_that_is_late_blames_no_redis(
    server: RedisServer, new_loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    """Timer and answer are found together then; uvloop looks at timers first, and the answer seems not to be there."""

    async def run() -> None:
        async with _open(server.url, most_ms=50.0) as kept:
            await kept.until_well()
            told = []
            for _ in range(4):
                asyncio.get_running_loop().call_later(0.001, time.sleep, 0.3)
                told.append(await kept.get(0))
            assert Found({}) in told
            assert kept.states == []

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(run())


async def test_a_wrong_password_costs_misses_and_is_told_by_its_kind(server: RedisServer) -> None:
    """Neither the password nor what the server says of it is told."""
    async with _open(server.url.replace(PASSWORD, "another")) as kept:
        for _ in range(3):
            assert await kept.get(0) == Found({}, faults=1)
        assert kept.states == [(BreakerState.OPEN, "AuthenticationError")]


async def test_what_others_put_there_is_a_miss_and_written_over(server: RedisServer) -> None:
    """A list where a score should be, and a value that is none."""
    async with _open(server.url) as kept:
        one, other = (b"cascade:1:" + key for key in keys_of(2))
        await kept.raw("LPUSH", one, "x")
        await kept.raw("SET", other, b"\1" + b"0" * 16)
        assert await kept.get(0, 1) == Found({}, faults=1)
        await kept.put(0, 1)


async def test_a_redis_that_is_full_takes_no_more_and_answers_what_it_has(server: RedisServer) -> None:
    """Without an eviction policy it refuses to write: those scores are counted as dropped."""
    async with _open(server.url) as kept:
        await kept.put(0)
        await kept.raw("CONFIG", "SET", "maxmemory", "1")
        kept.store.put(_named(1, 2))

        async def dropped() -> int:
            return kept.dropped[WriteDrop.FAULT]

        assert await _eventually(dropped) == 2
        assert await kept.get(0, 1) == Found(_named(0))


async def test_rounds_stay_right_whatever_becomes_of_the_redis(server: RedisServer) -> None:
    """Every round has the scores that the stage gives, with the Redis there, hanging, gone, and there again."""
    names = ["a" * length for length in range(1, 9)]
    async with _open(server.url, most_ms=50.0) as kept:
        stage: Cached = arranged(cache=cache_of(kept.store))

        async def rounds(times: int) -> None:
            for number in range(times):
                wanted = names[number % 4 : number % 4 + 4]
                assert (await stage.score(*wanted)).scores == tuple(len(name) + 0.01 for name in wanted)

        await rounds(8)
        server.pause()
        await rounds(8)
        server.resume()
        await rounds(8)
        server.kill()
        await rounds(8)
        server.start()
        await rounds(8)

        async def cached() -> int:
            return (await stage.score(*names)).cost.cached

        assert await _eventually(cached)
