"""Lives of a process that rolls out, one after the other, over what the one before kept."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from cascade.testing.clock import run_virtual
from tests.rollout.desk_fakes import FakeKeeps, Setup

__all__ = ["life"]


def life(folder: Path, keeps: FakeKeeps, scenario: Callable[[Setup], Awaitable[None]], *, killed: bool) -> Setup:
    """Run one life of the process; one that is killed keeps nothing more at its end."""

    async def play() -> Setup:
        setup = Setup(folder, keeps)
        setup.write("r2", setup.options.get("r2"))
        loop = asyncio.create_task(setup.desk.run())
        await asyncio.sleep(0.01)
        await scenario(setup)
        kept = keeps.kept
        loop.cancel()
        await asyncio.gather(loop, return_exceptions=True)
        await setup.desk.aclose()
        if killed:
            keeps.kept = kept
        return setup

    return run_virtual(play())
