"""Work beside the answers."""

from __future__ import annotations

import asyncio

from cascade.guard.beside import Beside
from cascade.testing.clock import run_virtual


def test_no_more_is_under_way_than_there_is_room_for() -> None:
    """A third piece of work is refused while two run, and taken when one has ended."""

    async def play() -> list[bool]:
        beside = Beside(2)
        started = [beside.start(lambda: asyncio.sleep(1.0)) for _ in range(3)]
        await asyncio.sleep(2.0)
        started.append(beside.start(lambda: asyncio.sleep(1.0)))
        await beside.aclose()
        return started

    assert run_virtual(play()) == [True, True, False, True]


def test_work_outlives_the_task_that_began_it() -> None:
    """A caller that is cancelled takes nothing with it that runs beside its answer."""
    done: list[str] = []

    async def work() -> None:
        await asyncio.sleep(1.0)
        done.append("work")

    async def play() -> None:
        beside = Beside(1)

        async def caller() -> None:
            beside.start(work)
            await asyncio.sleep(100.0)

        task = asyncio.create_task(caller())
        await asyncio.sleep(0.5)
        task.cancel()
        await asyncio.sleep(1.0)

    run_virtual(play())
    assert done == ["work"]


def test_closing_cancels_what_runs_and_takes_no_more() -> None:
    """Work is told that it is cancelled, even what had not begun a step, and the close waits for its end."""
    told: list[str] = []

    async def work() -> None:
        try:
            await asyncio.sleep(100.0)
        except asyncio.CancelledError:
            await asyncio.sleep(0.25)  # giving back takes a moment
            told.append("cancelled")
            raise

    async def play() -> tuple[bool, float]:
        beside = Beside(2)
        beside.start(work)
        await asyncio.sleep(1.0)
        beside.start(work)
        await beside.aclose()
        return beside.start(work), asyncio.get_running_loop().time()

    assert run_virtual(play()) == (False, 1.25)
    assert told == ["cancelled", "cancelled"]
