"""Calls that run at the same time, all or nothing."""

from __future__ import annotations

import asyncio

import pytest

from cascade.errors import StageOverloaded
from cascade.stages.calls import RoundFailed
from cascade.stages.together import together


async def _fails(after: int) -> None:
    for _ in range(after):
        await asyncio.sleep(0)
    raise RoundFailed(StageOverloaded, f"after_{after}")


async def test_the_first_failure_ends_the_others_and_is_raised() -> None:
    """What is left is cancelled and has ended by then."""
    ended: list[bool] = []

    async def waits() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.append(True)

    with pytest.raises(RoundFailed) as failed:
        await together([waits(), _fails(50), _fails(1)])
    assert failed.value.code == "after_1"
    assert ended == [True]


async def test_a_failure_leaves_no_cancellation_behind() -> None:
    """A timeout around it, whenever it fires, is told from a cancellation by that count."""
    with pytest.raises(RoundFailed):
        await together([_fails(1), _fails(2)])
    me = asyncio.current_task()
    assert me is not None
    assert not me.cancelling()


async def test_a_timeout_that_fires_as_a_child_fails_is_a_timeout_or_the_failure() -> None:
    """Whichever comes first in a turn of the loop, none of them escapes as a cancellation."""
    me, loop = asyncio.current_task(), asyncio.get_running_loop()
    assert me is not None

    async def ends_slowly() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            await asyncio.sleep(0)

    async def fire_after(turns: int, scope: asyncio.Timeout) -> None:
        for _ in range(turns):
            await asyncio.sleep(0)
        scope.reschedule(loop.time())

    async def timed(turns: int) -> None:
        async with asyncio.timeout(None) as scope:
            firing = asyncio.create_task(fire_after(turns, scope))
            try:
                await together([_fails(2), ends_slowly()])
            finally:
                firing.cancel()

    for turns in range(10):
        with pytest.raises((RoundFailed, TimeoutError)):
            await timed(turns)
        assert not me.cancelling()


async def test_who_is_cancelled_cancels_its_calls() -> None:
    """Lost work goes no further upstream."""
    ended: list[bool] = []

    async def waits() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    running = asyncio.create_task(together([waits(), waits()]))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert ended == [True, True]
