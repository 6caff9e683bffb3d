"""Scores that wait to be written beside the requests."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Final

from cascade.cache.store import WriteDrop

__all__ = ["Writes"]

_AT_ONCE: Final = 200
_LAST_SECONDS: Final = 1.0


class Writes:
    """Hand scores to ``write`` in a task of its own, many at once; more than ``most`` waiting are dropped and counted.

    What a write raises costs its scores, which are counted too, and nothing else.
    """

    def __init__(
        self,
        write: Callable[[Mapping[bytes, float]], Awaitable[None]],
        most: int,
        dropped: Callable[[WriteDrop, int], None],
    ) -> None:
        self._write = write
        self._most = most
        self._dropped = dropped
        self._waiting: deque[tuple[bytes, float]] = deque()
        self._some = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._task: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    def start(self) -> None:
        """Begin to write."""
        self._task = asyncio.create_task(self._run(), name="writes of the score cache")

    def put(self, scores: Mapping[bytes, float]) -> None:
        """Have scores written soon, as many as there is room for."""
        room = self._most - len(self._waiting)
        kept = list(scores.items())[: max(0, room)]
        if len(kept) < len(scores):
            self._dropped(WriteDrop.QUEUE, len(scores) - len(kept))
        if kept:
            self._waiting.extend(kept)
            self._idle.clear()
            self._some.set()

    async def aclose(self) -> None:
        """Write what waits, for a second at most."""
        if self._task is None:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(_LAST_SECONDS):
                await self._idle.wait()
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        waiting = self._waiting
        while True:
            await self._some.wait()
            batch = dict(waiting.popleft() for _ in range(min(_AT_ONCE, len(waiting))))
            try:
                await self._write(batch)
            except Exception:  # noqa: BLE001 - the boundary of a background task: a score that is not written is a miss
                self._dropped(WriteDrop.FAULT, len(batch))
            if not waiting:
                self._some.clear()
                self._idle.set()
