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
_NAMES_ANOTHER: Final = "the source names another release by now"


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
        self._put_off = ("", "")  # the digest, and until when
        self._desired: Desired | None = None

    @property
    def named(self) -> str | None:
        """Return the digest of what the source names, None as long as that is not known."""
        return None if self._desired is None else self._desired.digest

    def told(self) -> dict[str, Any] | None:
        """Return what is desired as the status has it, None where no release is watched.

        ``pending`` tells that it was not looked at yet, or that what it names has still to be dealt with.
        """
        if self._source is None:
            return None
        desired, remembered = self._desired or Desired(), self._ledger.remembered
        dealt_with = {remembered.seen, self._moves.stable.digest}
        is_pending = desired.fault is None if desired.digest is None else desired.digest not in dealt_with
        under_way = remembered.candidate is not None and remembered.candidate.digest == desired.digest
        is_put_off = is_pending and not under_way and self._put_off[0] == desired.digest
        return {
            "release": desired.name,
            "digest": desired.digest,
            "source": self._name,
            "asked_at": desired.asked_at,
            "fault": desired.fault,
            "pending": is_pending,
            "tried_again_at": self._put_off[1] if is_put_off else None,
        }

    async def watch(self) -> None:
        """Take in what the source says, until cancelled; `look` compares, so that nothing hangs on an event."""
        while self._source is not None:
            try:
                async for desired in self._source.changes():
                    self._desired = desired
                    self._news()
                    await self._end_other(desired.digest)
            except Exception as error:  # noqa: BLE001 - the boundary of a background task: it goes on looking
                self._count_fault(error)
            await asyncio.sleep(_APART_S)

    async def _end_other(self, digest: str | None) -> None:
        """End the activation of what the source named before, where it names another by now."""
        kept = self._ledger.remembered.candidate  # that of the activation under way, where there is one
        if kept is not None and kept.by_source and digest not in (None, kept.digest):
            await self._bringing_in.cancel(_NAMES_ANOTHER)

    async def look(self) -> None:
        """Hold what the source desires against what is active; bring it in where that was not dealt with yet."""
        desired, trial = self._desired, self._moves.trial
        if desired is None or desired.digest is None or desired.path_in_store is None:
            return
        self._forget_left(desired.digest)
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

    def _forget_left(self, digest: str) -> None:
        """Forget a candidate that a restart left to the source, where that names another by now."""
        left = self._ledger.remembered.candidate
        under_way = self._moves.trial is not None or self._bringing_in.step is not None
        if left is not None and left.digest != digest and not under_way:
            self._ledger.set(candidate=None)

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

        def is_due() -> bool:
            return self.named == kept.digest and self._ledger.remembered.seen != kept.digest

        try:
            await self._bringing_in.run(kept, wanted=is_due)
        except Refused as refused:
            if refused.passing:  # that a server is away says nothing of the release
                self._put_off = kept.digest, self._ledger.now(self._later.put_off(kept.digest))
                return False
            return is_due()
        return True
