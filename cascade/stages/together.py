"""Run the calls of a round at the same time, all or nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any

__all__ = ["together"]


async def together(works: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Run all of them; the first that fails ends the others, which are waited for, and is raised.

    asyncio's TaskGroup, in Python 3.11, does not take back the cancellation by which a failed child wakes its parent: a
    timeout around it that fires at the same moment is then taken for a cancellation from outside, and never becomes a
    TimeoutError. Nothing cancels the parent here.
    """
    tasks = [asyncio.create_task(work) for work in works]
    if not tasks:
        return
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in tasks:
        if not task.cancelled() and (failed := task.exception()) is not None:
            raise failed
