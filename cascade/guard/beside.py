"""Work beside the answers: bounded, and waited for by nobody."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

__all__ = ["Beside"]


class Beside:
    """Keep at most ``most`` pieces of work under way, none while ``paused``.

    Work handles its own faults and bounds its own time.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._under_way: set[asyncio.Task[None]] = set()
        self._closed = False
        self.paused = False

    def start(self, work: Callable[[], Coroutine[Any, Any, None]]) -> bool:
        """Begin ``work`` in a task of its own, which outlives the caller's; tell whether there was room."""
        if self._closed or self.paused or len(self._under_way) >= self._most:
            return False
        task = asyncio.create_task(work())
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        return True

    async def aclose(self) -> None:
        """Cancel what is under way, wait for its end, and start nothing any more."""
        self._closed = True
        await asyncio.sleep(0)  # work that has not begun would not learn that it is cancelled
        for task in list(self._under_way):
            task.cancel()
        await asyncio.gather(*self._under_way, return_exceptions=True)
