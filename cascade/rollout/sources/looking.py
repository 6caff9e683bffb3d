"""Look at a source again and again: what it says is a state, never an event."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from secrets import SystemRandom
from typing import Final, Protocol, TypeVar

from cascade.errors import ConfigError
from cascade.rollout.sources.desired import Desired, utc_now
from cascade.rollout.store import ReleaseStore, Stored
from cascade.telemetry.logs import note

__all__ = ["Looking", "OffLoop", "ReleaseSource"]

Result = TypeVar("Result")

_SPREAD: Final = 0.2
"""How much sooner or later than told it is looked, so that many replicas do not ask at once."""
_DRAW: Final = SystemRandom().random


class OffLoop(Protocol):
    """Run what reads or computes for a while elsewhere than on the event loop: `asyncio.to_thread`."""

    def __call__(self, work: Callable[[], Result], /) -> Awaitable[Result]:
        """Return the result of ``work``, or raise what it raises."""
        ...


@dataclass(frozen=True, slots=True)
class Looking:
    """How often a source is looked at, and by what. ``draw`` gives numbers in [0, 1)."""

    seconds: float = 30.0
    count_fault: Callable[[BaseException], None] = lambda error: None
    draw: Callable[[], float] = _DRAW
    stamp: Callable[[], str] = utc_now
    off_loop: OffLoop = asyncio.to_thread

    def interval_s(self) -> float:
        """Return how long to wait until the next look: ``seconds``, a fifth more or less."""
        return self.seconds * (1 - _SPREAD + 2 * _SPREAD * self.draw())


class ReleaseSource(ABC):
    """A place that names the desired release. What it was last known to name stands until it names another."""

    def __init__(self, store: ReleaseStore, looking: Looking) -> None:
        self._store = store
        self._looking = looking
        self._known = Desired()
        self._one_at_a_time = asyncio.Lock()
        self._deaf: str | None = None

    async def now(self) -> Desired:
        """Look, and return what is desired. It never raises: what went wrong is the ``fault``."""
        async with self._one_at_a_time:
            asked_at = self._looking.stamp()
            try:
                found = await self._look()
            except ConfigError as error:
                self._known = replace(self._known, fault=str(error))
            except Exception as error:  # noqa: BLE001 - the boundary of a background task: else nobody ever looks again
                self._looking.count_fault(error)
                self._known = replace(self._known, fault=f"an internal fault: {type(error).__name__}")
            else:
                if found.digest == self._known.digest:
                    self._known = replace(self._known, path_in_store=found.path, fault=None)
                else:
                    stamp = self._looking.stamp()
                    self._known = Desired(found.digest, found.name, found.path, asked_at, stamp)
            return self._known

    async def changes(self) -> AsyncGenerator[Desired, None]:
        """Give what is desired, at once and then each time that a look finds it, or its fault, to be another.

        Nothing hangs on an event: at the latest after the interval it is looked again.
        """
        before: Desired | None = None
        hint = asyncio.Event()
        listening: asyncio.Task[None] | None = None
        try:
            while True:
                if listening is None or listening.done():
                    listening = asyncio.create_task(self._listen(hint.set), name="hints at a new release")
                    await asyncio.sleep(0)  # so that what changes during the look is a hint already
                hint.clear()
                found = await self.now()
                if found != before:
                    if found.fault is not None and (before is None or found.fault != before.fault):
                        note("warning", "the release that is named cannot be used", why=found.fault)
                    before = found
                    yield found
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._looking.interval_s()):
                        await hint.wait()
        finally:
            if listening is not None:
                listening.cancel()
                await asyncio.gather(listening, return_exceptions=True)

    async def _listen(self, hint: Callable[[], None]) -> None:
        try:
            await self._hints(hint)
        except Exception as error:  # noqa: BLE001 - the boundary of a background task, whose work the interval does as well
            why = type(error).__name__
            if why != self._deaf:
                note("warning", "a new release is found at the next look: there are no hints", why=why)
            self._deaf = why

    @abstractmethod
    async def _look(self) -> Stored:
        """Return what the source names, put into the store. Raises ConfigError where it cannot be used."""

    async def _hints(self, hint: Callable[[], None]) -> None:  # noqa: B027 - most have none
        """Call ``hint`` where it may be worth looking sooner. It may miss anything, end or raise."""
