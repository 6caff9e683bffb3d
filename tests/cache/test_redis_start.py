"""Start and end of a store in a Redis: neither waits for it nor fails by it, and one that is away is told at once."""

from __future__ import annotations

import asyncio

import pytest

from cascade.testing.clock import run_virtual
from tests.cache.kept_in_redis import KeptInRedis


@pytest.mark.parametrize(
    ("fails", "delay_s", "told"),
    [(None, 0.001, None), (ConnectionError(), 0.001, "ConnectionError"), (None, 10.0, "TimeoutError")],
)
def test_whether_it_answers_is_found_out_beside_the_start(
    fails: Exception | None, delay_s: float, told: str | None
) -> None:
    """The start waits for nothing, and it is told within a second."""

    async def run() -> None:
        kept = KeptInRedis()
        kept.client.fails, kept.client.delay_s = fails, delay_s
        await kept.store.start()
        assert (kept.clock(), kept.reached) == (0.0, [])
        await asyncio.sleep(1.1)
        assert kept.reached == [told]
        assert await kept.store.why_not() == told
        await kept.store.aclose()

    run_virtual(run())


def test_a_store_that_is_closed_at_once_leaves_nothing_under_way() -> None:
    """The first look is given up with the rest."""

    async def run() -> None:
        kept = KeptInRedis()
        kept.client.delay_s = 0.5
        await kept.store.start()
        await asyncio.sleep(0.01)
        await kept.store.aclose()
        assert kept.clock() == pytest.approx(0.01)
        assert kept.reached == []
        assert asyncio.all_tasks() == {asyncio.current_task()}

    run_virtual(run())


def test_a_connection_that_does_not_end_well_stops_nobody_from_stopping() -> None:
    """What the library raises then is of no use to anybody."""

    async def run() -> None:
        kept = KeptInRedis()
        await kept.store.start()
        kept.client.fails = TimeoutError()
        await kept.store.aclose()
        assert kept.client.closed

    run_virtual(run())
