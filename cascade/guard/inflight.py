"""Bound the work under way at one endpoint, counted in texts and in tokens."""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Final, NamedTuple

__all__ = ["TextLimiter"]

_UNBOUNDED: Final = sys.maxsize


class _Need(NamedTuple):
    texts: int
    tokens: int


class TextLimiter:
    """Let at most ``limit`` texts and ``token_limit`` tokens be in flight; who waits is served first come, first served.

    Servers count one permit a text, not one a request: sixteen requests of 32 texts are 512.
    A hold of more than a limit waits until nothing else is in flight, then passes alone.
    Cancelling a waiter frees its place. Cost grows with the number of waiters only. The limits may
    change at any time: what is in flight stays, and who waits is held to the new ones.
    """

    def __init__(self, limit: int, token_limit: int = _UNBOUNDED) -> None:
        _check(limit, token_limit)
        self._limit = limit
        self._token_limit = token_limit
        self.in_flight = 0
        self.tokens_in_flight = 0
        self._waiters: deque[tuple[_Need, asyncio.Future[_Need], float]] = deque()
        self._watching: list[Callable[[], None]] = []

    @property
    def limit(self) -> int:
        """Return the most texts in flight."""
        return self._limit

    @limit.setter
    def limit(self, limit: int) -> None:
        self.set_limits(limit, self._token_limit)

    @property
    def token_limit(self) -> int:
        """Return the most tokens in flight."""
        return self._token_limit

    @property
    def waiting(self) -> int:
        """Return how many wait for room."""
        return len(self._waiters)

    @property
    def oldest_wait_ms(self) -> float:
        """Return how long the first in line has waited by now, 0 where none waits."""
        if not self._waiters:
            return 0.0
        return (asyncio.get_running_loop().time() - self._waiters[0][2]) * 1000

    def has_room(self, texts: int, tokens: int = 0) -> bool:
        """Tell whether a hold would not have to wait."""
        return not self._waiters and self._fits(self._bounded(_Need(texts, tokens)))

    def set_limits(self, texts: int, tokens: int) -> None:
        """Bound what is in flight anew."""
        if (texts, tokens) == (self._limit, self._token_limit):
            return
        _check(texts, tokens)
        self._limit, self._token_limit = texts, tokens
        self._grant()
        self._tell()

    @contextmanager
    def watched(self, changed: Callable[[], None]) -> Iterator[None]:
        """Call ``changed`` inside the block whenever room was given back or the limits are others: those in line have had theirs."""
        self._watching.append(changed)
        try:
            yield
        finally:
            self._watching.remove(changed)

    @asynccontextmanager
    async def hold(self, texts: int, tokens: int = 0) -> AsyncIterator[None]:
        """Wait for room, hold it inside the block, and give it back."""
        held = await self._acquire(_Need(texts, tokens))
        try:
            yield
        finally:
            self._release(held)

    async def _acquire(self, wanted: _Need) -> _Need:
        need = self._bounded(wanted)
        if not self._waiters and self._fits(need):
            self._take(need)
            return need
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[_Need] = loop.create_future()
        waiter = (wanted, turn, loop.time())
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

    def _bounded(self, wanted: _Need) -> _Need:
        return _Need(min(wanted.texts, self._limit), min(wanted.tokens, self._token_limit))

    def _fits(self, need: _Need) -> bool:
        return self.in_flight + need.texts <= self._limit and self.tokens_in_flight + need.tokens <= self._token_limit

    def _take(self, need: _Need) -> None:
        self.in_flight += need.texts
        self.tokens_in_flight += need.tokens

    def _release(self, held: _Need) -> None:
        self.in_flight -= held.texts
        self.tokens_in_flight -= held.tokens
        self._grant()
        self._tell()

    def _grant(self) -> None:
        while self._waiters:
            wanted, turn, _ = self._waiters[0]
            need = self._bounded(wanted)
            if turn.done() or not self._fits(need):  # done: cancelled, its own handler is yet to run
                return
            self._waiters.popleft()
            self._take(need)
            turn.set_result(need)

    def _tell(self) -> None:
        for changed in self._watching:
            changed()


def _check(texts: int, tokens: int) -> None:
    if texts < 1 or tokens < 1:
        raise ValueError("a limit is at least one text and one token")
