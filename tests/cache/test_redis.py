"""Scores in a Redis, over a client that does as it is told."""

from __future__ import annotations

import asyncio
import sys
from typing import Any, Final

import pytest

from cascade.cache.packed import Packer
from cascade.cache.redis import connect
from cascade.cache.store import Found, WriteDrop
from cascade.errors import ConfigError
from cascade.testing.clock import VirtualTimeLoop, run_virtual
from cascade.types import BreakerState
from tests.cache.arrange import SECRET, keys_of
from tests.cache.kept_in_redis import MOST_MS, KeptInRedis

_LOOKUPS: Final = 12


def test_what_is_kept_is_written_beside_and_found_later() -> None:
    """In one command each way, with a time to live, under keys that say nothing."""

    async def run() -> None:
        kept = KeptInRedis()
        await kept.store.start()
        keys = keys_of(3)
        assert await kept.get(keys) == Found({})
        kept.store.put({keys[0]: 0.25, keys[1]: -3.5})
        await asyncio.sleep(0.01)
        assert await kept.get(keys) == Found({keys[0]: 0.25, keys[1]: -3.5})
        assert kept.client.ttl_ms == {60_000}
        assert set(kept.client.kept) == {b"cascade:1:" + key for key in keys[:2]}
        await kept.store.aclose()
        assert kept.client.closed

    run_virtual(run())


def test_what_is_no_score_is_a_fault_and_not_answered() -> None:
    """A value of another length or type, one that was altered, and one that belongs to another key."""

    async def run() -> None:
        kept = KeptInRedis()
        keys = keys_of(6)
        packer = Packer(SECRET)
        right = packer.pack(keys[0], 0.5)
        values = (right, right[:-1], b"", right[:-1] + bytes([right[-1] ^ 1]), packer.pack(keys[0], 0.5), "text")
        kept.client.kept = {b"cascade:1:" + key: value for key, value in zip(keys, values, strict=True)}
        assert await kept.get(keys) == Found({keys[0]: 0.5}, faults=5)

    run_virtual(run())


def test_a_slow_redis_costs_its_wait_thrice_and_then_nothing() -> None:
    """Then it is left alone for a while, and asked with one lookup whether it is well again."""

    async def run() -> None:
        kept = KeptInRedis()
        keys = keys_of(1)
        kept.client.delay_s = 10.0
        for number in range(20):
            assert await kept.get(keys) == Found({}, faults=1)
            assert kept.clock() == pytest.approx(min(number + 1, 3) * MOST_MS / 1000)
        assert kept.client.asked == 3
        assert kept.states == [(BreakerState.OPEN, "slow")]
        assert kept.store.told()["breaker"] is BreakerState.OPEN
        kept.client.delay_s = 0.001
        await asyncio.sleep(1.0)
        assert await kept.get(keys) == Found({})
        assert [state for state, _ in kept.states] == [BreakerState.OPEN, BreakerState.HALF_OPEN, BreakerState.CLOSED]
        await kept.store.aclose()

    run_virtual(run())


@pytest.mark.parametrize("answer", ["text", 7, [], [b"a", b"b", b"c"]])
def test_an_answer_that_is_none_is_a_fault(answer: Any) -> None:
    """Whatever speaks there, the round goes on."""

    async def run() -> None:
        kept = KeptInRedis()
        kept.client.answer = answer
        assert await kept.get(keys_of(2)) == Found({}, faults=2)

    run_virtual(run())


def test_a_redis_that_refuses_is_a_fault_that_is_told_by_its_kind_alone() -> None:
    """What it says is in no log, metric or error: it may repeat an address."""

    async def run() -> None:
        kept = KeptInRedis()
        kept.client.fails = PermissionError("WRONGPASS canary-5f3a")
        for _ in range(3):
            assert await kept.get(keys_of(2)) == Found({}, faults=2)
        assert kept.states == [(BreakerState.OPEN, "PermissionError")]

    run_virtual(run())


def test_a_request_in_a_hurry_says_nothing_of_the_redis() -> None:
    """It waits no longer than its own deadline, and opens no breaker."""

    async def run() -> None:
        kept = KeptInRedis()
        kept.client.delay_s = 0.004
        for number in range(10):
            assert (await kept.get(keys_of(1), within_ms=1.0)).faults == 1
            assert kept.clock() == pytest.approx((number + 1) * 0.001)
        assert kept.states == []
        assert (await kept.get(keys_of(1))).faults == 0

    run_virtual(run())


def test_an_answer_that_comes_late_is_read_off() -> None:
    """Who asked has gone on, and the connection is as good as before: nothing is cancelled."""

    async def run() -> None:
        kept = KeptInRedis()
        kept.client.delay_s = 0.02
        assert (await kept.get(keys_of(1))).faults == 1
        await asyncio.sleep(0.02)
        kept.client.delay_s = 0.001
        assert (await kept.get(keys_of(1))).faults == 0
        assert kept.client.asked == 2

    run_virtual(run())


def test_a_process_that_is_late_says_nothing_of_the_redis() -> None:
    """Where it was busy for longer than it would have waited, nobody knows whether the answer was there."""

    async def run() -> None:
        kept = KeptInRedis()
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualTimeLoop)

        def be_late() -> None:
            loop._virtual.now += 0.05

        kept.client.delay_s = 10.0
        for _ in range(5):
            loop.call_later(0.002, be_late)
            assert (await kept.get(keys_of(1))).faults == 1
        assert kept.states == []
        await kept.store.aclose()

    run_virtual(run())


def test_no_more_lookups_are_under_way_than_there_are_connections_for() -> None:
    """Further ones are misses at once."""

    async def run() -> None:
        kept = KeptInRedis()
        kept.client.delay_s = 0.004
        found = await asyncio.gather(*(kept.get(keys_of(1)) for _ in range(_LOOKUPS + 8)))
        assert sum(one.faults for one in found) == 8
        assert kept.client.asked == _LOOKUPS
        assert kept.states == []

    run_virtual(run())


def test_a_lookup_whose_request_is_cancelled_ends_by_itself() -> None:
    """And says nothing of the Redis."""

    async def run() -> None:
        kept = KeptInRedis()
        for _ in range(5):
            task = asyncio.create_task(kept.get(keys_of(1)))
            await asyncio.sleep(0.0005)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            assert task.cancelled()
        assert kept.states == []
        await asyncio.sleep(0.1)
        assert (await kept.get(keys_of(1))).faults == 0

    run_virtual(run())


def test_nothing_is_written_while_the_redis_is_left_alone() -> None:
    """It is counted, and no queue grows."""

    async def run() -> None:
        kept = KeptInRedis()
        await kept.store.start()
        kept.client.fails = ConnectionError()
        for _ in range(3):
            await kept.get(keys_of(1))
        kept.store.put({keys_of(1)[0]: 0.5})
        assert kept.dropped == {WriteDrop.FAULT: 1}
        assert kept.store.told()["waiting_writes"] == 0
        await kept.store.aclose()

    run_virtual(run())


def test_an_address_that_is_none_is_told_without_it() -> None:
    """It may hold a password."""
    with pytest.raises(ConfigError, match="no address of a Redis") as raised:
        connect("http://user:canary-5f3a@redis.example")
    assert "canary" not in str(raised.value)
    assert raised.value.__suppress_context__


def test_the_library_is_named_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is an extra."""
    monkeypatch.setitem(sys.modules, "redis.asyncio", None)
    with pytest.raises(ConfigError, match=r"cascade-rerank\[redis\]"):
        connect("redis://localhost")
