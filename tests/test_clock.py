"""Virtual time: the loop that tests of time run on."""

from __future__ import annotations

import asyncio
import time

import pytest

from cascade.testing.clock import run_virtual


def test_sleeping_moves_the_clock_and_takes_no_time() -> None:
    """A day of sleep passes on the loop's clock and not for real."""

    async def sleep() -> float:
        await asyncio.sleep(86_400)
        await asyncio.sleep(0.5)
        return asyncio.get_running_loop().time()

    began = time.monotonic()
    assert run_virtual(sleep()) == pytest.approx(86_400.5)
    assert time.monotonic() - began < 60


def test_the_clock_begins_at_zero_and_stands_still_between_timers() -> None:
    """Work without waiting takes no virtual time."""

    async def work() -> list[float]:
        loop = asyncio.get_running_loop()
        times = [loop.time()]
        for _ in range(100):
            await asyncio.sleep(0)
        return [*times, loop.time()]

    assert run_virtual(work()) == [0.0, 0.0]


def test_timers_run_in_the_order_of_their_moments() -> None:
    """Sleeps under way together end by length, whatever order they began in, each at its moment."""

    async def race() -> list[float]:
        loop = asyncio.get_running_loop()
        ended: list[float] = []

        async def one(seconds: float) -> None:
            await asyncio.sleep(seconds)
            assert loop.time() == pytest.approx(seconds)
            ended.append(seconds)

        await asyncio.gather(*map(one, (3.0, 1.0, 2.0)))
        return ended

    assert run_virtual(race()) == [1.0, 2.0, 3.0]


def test_a_timeout_ends_at_its_moment() -> None:
    """``asyncio.timeout`` is on virtual time too."""

    async def wait() -> float:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5):
                await asyncio.Event().wait()
        return asyncio.get_running_loop().time()

    assert run_virtual(wait()) == pytest.approx(5.0)


def test_the_result_and_the_exception_of_a_coroutine_come_back() -> None:
    """What the coroutine returns or raises is what the caller gets."""

    async def fail() -> None:
        raise KeyError("x")

    async def answer() -> int:
        return 42

    assert run_virtual(answer()) == 42
    with pytest.raises(KeyError):
        run_virtual(fail())
