"""Bound the work under way at one endpoint, counted in texts."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

__all__ = ["TextLimiter"]


class TextLimiter:
    """Let at most ``limit`` texts be in flight; who waits is served first come, first served.

    Servers count one permit a text, not one a request: sixteen requests of 32 texts are 512.
    A hold of more texts than the limit waits until nothing else is in flight, then passes alone.
    Cancelling a waiter frees its place. Cost grows with the number of waiters only.
    """

    def __init__(self, limit: int) -> None:
        if limit < 1:
            raise ValueError("a limit is at least one text")
        self.limit = limit
        self.in_flight = 0
        self._waiters: deque[tuple[int, asyncio.Future[None]]] = deque()

    @asynccontextmanager
    async def hold(self, texts: int) -> AsyncIterator[None]:
        """Wait for room for ``texts``, hold it inside the block, and give it back."""
        need = min(texts, self.limit)
        await self._acquire(need)
        try:
            yield
        finally:
            self._release(need)

    async def _acquire(self, need: int) -> None:
        if not self._waiters and self.in_flight + need <= self.limit:
            self.in_flight += need
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiter = (need, turn)
        self._waiters.append(waiter)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._release(need)  # the room had been granted in the same step
            else:
                self._waiters.remove(waiter)
                self._grant()
            raise

    def _release(self, need: int) -> None:
        self.in_flight -= need
        self._grant()

    def _grant(self) -> None:
        while self._waiters and self.in_flight + self._waiters[0][0] <= self.limit:
            need, turn = self._waiters.popleft()
            if turn.done():  # cancelled, and its own handler has not run yet
                self._waiters.appendleft((need, turn))
                return
            self.in_flight += need
            turn.set_result(None)
