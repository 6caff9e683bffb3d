"""Bring in what a source desires, and deal with each release that it names once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar

from cascade.guard.deadline import Clock
from cascade.rollout.activation import Refused
from cascade.rollout.bringing_in import BringingIn
from cascade.rollout.history import Happened, KeptCandidate
from cascade.rollout.later import Later
from cascade.rollout.ledger import Ledger
from cascade.rollout.moves import Moves
from cascade.rollout.ports import Serving, Source
from cascade.rollout.sources.desired import Desired

__all__ = ["Following"]

Release = TypeVar("Release", bound=Serving)

_APART_S: Final = 1.0
"""Between two tries to watch a source that fails."""
_IS_STABLE: Final = "the source names the stable release"


class Following(Generic[Release]):
    """Hold what ``source`` desires against what is active: a state, and never an event.

    ``name`` is what the source is called, and ``lenient`` lets warnings pass. ``news`` is called where it is worth to look.
    """

    def __init__(
        self,
        source: Source | None,
        name: str,
        moves: Moves[Release],
        bringing_in: BringingIn[Release],
        ledger: Ledger,
        *,
        lenient: bool,
        clock: Clock,
        count_fault: Callable[[BaseException], None],
        news: Callable[[], None],
    ) -> None:
        self._source = source
        self._name = name
        self._moves = moves
        self._bringing_in = bringing_in
        self._ledger = ledger
        self._lenient = lenient
        self._count_fault = count_fault
        self._news = news
        self._later = Later(clock)
        self._desired: Desired | None = None

    def told(self) -> dict[str, Any] | None:
        """Return what is desired as the status has it, None where no release is watched or none was seen yet."""
        desired = self._desired
        if desired is None:
            return None
        return {
            "release": desired.name,
            "digest": desired.digest,
            "source": self._name,
            "asked_at": desired.asked_at,
            "fault": desired.fault,
        }

    async def watch(self) -> None:
        """Take in what the source says, until cancelled; `look` compares, so that nothing hangs on an event."""
        while self._source is not None:
            try:
                async for desired in self._source.changes():
                    self._desired = desired
                    self._news()
            except Exception as error:  # noqa: BLE001 - the boundary of a background task: it goes on looking
                self._count_fault(error)
            await asyncio.sleep(_APART_S)

    async def look(self) -> None:
        """Hold what the source desires against what is active; bring it in where that was not dealt with yet."""
        desired, trial = self._desired, self._moves.trial
        if desired is None or desired.digest is None or desired.path_in_store is None:
            return
        if desired.digest == self._ledger.remembered.seen or self._later.waits(desired.digest):
            return
        if desired.digest == self._moves.stable.digest:
            await self._bringing_in.cancel(_IS_STABLE)
            if desired.digest != self._moves.stable.digest:  # what was cancelled had got all traffic just before
                return
            self._moves.take_back(Happened.REPLACED, (_IS_STABLE,))
        elif (trial is None or trial.candidate.digest != desired.digest) and not await self._bring_in(desired):
            return
        self._ledger.set(seen=desired.digest)

    async def _bring_in(self, desired: Desired) -> bool:
        """Bring a desired release in; tell whether that is dealt with, whatever came of it."""
        kept = KeptCandidate(
            release=desired.name or "",
            digest=desired.digest or "",
            path=str(desired.path_in_store),
            asked_at=desired.asked_at or self._ledger.now(),
            downloaded_at=desired.downloaded_at,
            lenient=self._lenient,
            by_source=True,
        )
        try:
            await self._bringing_in.run(kept)
        except Refused as refused:
            if refused.passing:  # that a server is away says nothing of the release
                self._later.put_off(kept.digest)
                return False
        return True
