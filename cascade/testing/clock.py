"""Virtual time: an event loop that never waits."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

__all__ = ["VirtualTimeLoop", "run_virtual"]

Result = TypeVar("Result")


class _Selector(selectors.DefaultSelector):
    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Move time on in place of waiting; wait for real only where nothing is scheduled at all."""
        events = super().select(timeout if timeout is None else 0)
        if not events and timeout:
            self.now += timeout
        return events


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """Run timers at once, in order, on a clock that only they move.

    ``loop.time`` is the clock to inject. Threads and sockets do not belong on this loop.
    """

    def __init__(self) -> None:
        self._virtual = _Selector()
        super().__init__(self._virtual)

    def time(self) -> float:
        return self._virtual.now


def run_virtual(coroutine: Coroutine[Any, Any, Result]) -> Result:
    """Run a coroutine on a loop of virtual time, and return its result."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(coroutine)
