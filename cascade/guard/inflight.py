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
    Cancelling a waiter frees its place. Cost grows with the number of waiters only. The limit may
    change at any time: what is in flight stays, and who waits is held to the new one.
    """

    def __init__(self, limit: int) -> None:
        if limit < 1:
            raise ValueError("a limit is at least one text")
        self._limit = limit
        self.in_flight = 0
        self._waiters: deque[tuple[int, asyncio.Future[int]]] = deque()

    @property
    def limit(self) -> int:
        """Return the most texts in flight."""
        return self._limit

    @limit.setter
    def limit(self, limit: int) -> None:
        if limit < 1:
            raise ValueError("a limit is at least one text")
        self._limit = limit
        self._grant()

    @asynccontextmanager
    async def hold(self, texts: int) -> AsyncIterator[None]:
        """Wait for room for ``texts``, hold it inside the block, and give it back."""
        held = await self._acquire(texts)
        try:
            yield
        finally:
            self._release(held)

    async def _acquire(self, texts: int) -> int:
        need = min(texts, self._limit)
        if not self._waiters and self.in_flight + need <= self._limit:
            self.in_flight += need
            return need
        turn: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        waiter = (texts, turn)
        self._waiters.append(waiter)
        try:
            return await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._release(turn.result())  # the room had been granted in the same step
            else:
                self._waiters.remove(waiter)
                self._grant()
            raise

    def _release(self, held: int) -> None:
        self.in_flight -= held
        self._grant()

    def _grant(self) -> None:
        while self._waiters:
            texts, turn = self._waiters[0]
            need = min(texts, self._limit)
            if turn.done() or self.in_flight + need > self._limit:  # done: cancelled, its own handler is yet to run
                return
            self._waiters.popleft()
            self.in_flight += need
            turn.set_result(need)
