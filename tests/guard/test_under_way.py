"""The time of requests under way."""

from __future__ import annotations

import asyncio

from cascade.guard.under_way import UnderWay
from cascade.testing.clock import run_virtual


def test_h6_all_that_is_under_way_ends_at_once_and_so_does_what_comes_later() -> None:
    """A scope that was left is let be; one that is entered afterwards has no time at all."""

    async def play() -> None:
        loop, under_way, ended = asyncio.get_running_loop(), UnderWay(), []

        async def work(seconds: float) -> None:
            try:
                async with asyncio.timeout(100) as scope:
                    with under_way.within(scope):
                        await asyncio.sleep(seconds)
            except TimeoutError:
                ended.append((seconds, loop.time()))

        async def stop() -> None:
            await asyncio.sleep(2)
            under_way.end()
            under_way.end()
            await work(7)

        await asyncio.gather(work(1), work(5), work(6), stop())
        assert sorted(ended) == [(5, 2.0), (6, 2.0), (7, 2.0)]

    run_virtual(play())
