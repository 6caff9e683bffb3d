"""The time of requests under way, so that all of it can be ended at once."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["UnderWay"]


class UnderWay:
    """Hold the time scope of every request under way. ``ended`` tells that none has any time from now on.

    A part can be ended alone, and ends with the whole.
    """

    def __init__(self) -> None:
        self._scopes: set[asyncio.Timeout] = set()
        self._parts: set[UnderWay] = set()
        self.ended = False

    def part(self) -> UnderWay:
        """Return a part of this, to be handed back to `forget`."""
        part = UnderWay()
        part.ended = self.ended
        self._parts.add(part)
        return part

    def forget(self, part: UnderWay) -> None:
        """Let go of a part."""
        self._parts.discard(part)

    @contextmanager
    def within(self, scope: asyncio.Timeout) -> Iterator[None]:
        """Hold an entered scope inside the block."""
        self._scopes.add(scope)
        if self.ended:
            _end(scope)
        try:
            yield
        finally:
            self._scopes.discard(scope)

    def end(self) -> None:
        """End the time of all that is under way, and of whatever comes: each answers with what it has."""
        self.ended = True
        for scope in self._scopes:
            _end(scope)
        for part in self._parts:
            part.end()


def _end(scope: asyncio.Timeout) -> None:
    if not scope.expired():
        scope.reschedule(asyncio.get_running_loop().time())
