"""Take note of what happens to releases: in the log, in the history, and where a restart finds it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from cascade.rollout.history import Entry, Happened, Keeps, Remembered, RolloutState
from cascade.rollout.sources.looking import OffLoop
from cascade.telemetry.folders import why_not
from cascade.telemetry.logs import note

__all__ = ["Ledger"]

_ENDS: Final = {
    Happened.COMPLETED: RolloutState.COMPLETED,
    Happened.ROLLED_BACK: RolloutState.ROLLED_BACK,
    Happened.ABORTED: RolloutState.ABORTED,
    Happened.REPLACED: RolloutState.ABORTED,
    Happened.REFUSED: RolloutState.REFUSED,
}
"""Entries that end a rollout, and what came of it."""


class Ledger:
    """Hold what is remembered of rollouts, and keep it where there is a place for it.

    ``now`` is the wall clock. ``ended`` is told of each rollout that ends, by what came of it, and ``kept`` of each try to keep
    it, whether that was good; ``fault`` is why the last was not, else None. That it cannot be kept, on a
    full disk say, is told once, and again after it was well; the rollout goes on.
    """

    def __init__(
        self,
        remembered: Remembered | None = None,
        keeps: Keeps | None = None,
        *,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        off_loop: OffLoop = asyncio.to_thread,
        ended: Callable[[str], None] = lambda outcome: None,
        kept: Callable[[bool], None] = lambda good: None,
    ) -> None:
        self.remembered = remembered or Remembered()
        self._keeps = keeps
        self._now = now
        self._off_loop = off_loop
        self._ended = ended
        self._kept: Remembered | None = None
        self._tell_kept = kept
        self.fault: str | None = None
        self._one = asyncio.Lock()
        self._writing: asyncio.Future[None] | None = None

    def now(self, later_s: float = 0.0) -> str:
        """Return the time of day, or that of so many seconds later, as it is written down."""
        return (self._now() + timedelta(seconds=later_s)).isoformat(timespec="milliseconds")

    def set(self, **changes: Any) -> None:
        """Change what is remembered."""
        self.remembered = self.remembered.model_copy(update=changes)

    def note(self, what: Happened, release: str, digest: str | None, **more: Any) -> None:
        """Write one thing down that happened; ``more`` are fields of `Entry`. The log has it without the evidence."""
        entry = Entry(at=self.now(), what=what, release=release, digest=digest, **more)
        self.remembered = self.remembered.with_entry(entry)
        if what in _ENDS:
            self._ended(_ENDS[what])
        if what is Happened.SERVED:  # the log tells of it where it tells what it serves
            return
        bad = what in {Happened.ROLLED_BACK, Happened.REFUSED}
        note(
            "warning" if bad else "info",
            "rollout",
            what=what,
            release=release,
            digest=digest,
            share=entry.share,
            step=entry.step,
            why=list(entry.why),
        )

    async def save(self) -> None:
        """Keep what is remembered, unless that is what was kept last.

        A write goes on where who waits for it is cancelled; the next one waits for its end, so that the last one stands.
        """
        async with self._one:
            if self._writing is not None:
                await asyncio.wait([self._writing])
            keeps, remembered = self._keeps, self.remembered
            if keeps is None or remembered is self._kept:
                return
            self._writing = asyncio.ensure_future(self._off_loop(lambda: keeps.write(remembered)))
            try:
                await asyncio.shield(self._writing)
            except OSError as error:
                if self.fault is None:
                    note("error", "rollout state cannot be kept", why=why_not(error))
                self.fault = why_not(error)
                self._tell_kept(False)
                return
            if self.fault is not None:
                note("info", "rollout state is kept again")
            self._kept, self.fault = remembered, None
            self._tell_kept(True)
