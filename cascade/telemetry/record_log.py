"""Keep records from a thread of its own: whoever records never waits for the disk."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from enum import StrEnum
from typing import Final

from cascade.errors import ConfigError
from cascade.telemetry.folders import why_not
from cascade.telemetry.logs import note
from cascade.telemetry.record_file import Record, RecordSink

__all__ = ["DropReason", "RecordLog"]

_MOST_CHARACTERS: Final = 64_000_000
"""Text that waiting records may hold in memory, whatever their number."""


class DropReason(StrEnum):
    """Why a record was not kept. The list is closed."""

    QUEUE_FULL = "queue_full"
    UNWRITABLE = "unwritable"
    FAULT = "fault"
    SHUTDOWN = "shutdown"


class RecordLog:
    """Hand records to a thread that makes and writes them.

    At most ``queue`` records wait; one more is dropped. ``count_written`` and ``count_dropped`` are called
    from any thread, ``count_fault`` for what ``make`` raises. A record that could not be written is dropped, and the file
    is tried again with the next; the log has a line of the first, and again after it was well. What is due by age is looked at every ``least_wait_s`` at most. Raises ConfigError
    where the file, in errors called ``name``, cannot be opened at all.
    """

    def __init__(
        self,
        file: RecordSink,
        *,
        queue: int,
        count_written: Callable[[], None],
        count_dropped: Callable[[DropReason, int], None],
        count_fault: Callable[[BaseException], None],
        least_wait_s: float = 1.0,
        name: str = "record_file",
    ) -> None:
        try:
            file.open()
        except OSError as error:
            raise ConfigError(f"{name}: cannot be opened: {why_not(error)}") from None
        self._file = file
        self._most = queue
        self._least_wait_s = least_wait_s
        self._count_written = count_written
        self._count_dropped = count_dropped
        self._count_fault = count_fault
        self._waiting: deque[tuple[Callable[[], Record], int]] = deque()
        self._characters = 0
        self._changed = threading.Condition()
        self._closing = False
        self._is_told = False
        self._thread = threading.Thread(target=self._work, name="decision records", daemon=True)
        self._thread.start()

    def offer(self, make: Callable[[], Record], characters: int) -> None:
        """Have a record made and written; drop it where too many wait, or too many characters of text with them."""
        with self._changed:
            room = len(self._waiting) < self._most and self._characters + characters <= _MOST_CHARACTERS
            if room and not self._closing:
                self._waiting.append((make, characters))
                self._characters += characters
                self._changed.notify()
                return
            reason = DropReason.SHUTDOWN if self._closing else DropReason.QUEUE_FULL
        self._count_dropped(reason, 1)

    async def aclose(self, seconds: float) -> None:
        """Take no more, write what waits for at most some seconds, and drop the rest."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        await asyncio.to_thread(self._thread.join, seconds)
        with self._changed:
            left = len(self._waiting)
            self._waiting.clear()
        if left:
            self._count_dropped(DropReason.SHUTDOWN, left)

    def _work(self) -> None:
        self._guarded(self._file.begin)
        while True:
            make, is_due = self._next()
            if is_due:
                self._guarded(self._file.settle)
            elif make is None:
                break
            else:
                self._keep(make)
        self._guarded(self._file.close)

    def _keep(self, make: Callable[[], Record]) -> None:
        try:
            self._file.append(make())
        except OSError as error:
            self._count_dropped(DropReason.UNWRITABLE, 1)
            if not self._is_told:
                note("error", "decision records cannot be written, and are dropped", why=why_not(error))
            self._is_told = True
        except Exception as error:  # noqa: BLE001 - the boundary of a background thread
            self._count_fault(error)
            self._count_dropped(DropReason.FAULT, 1)
        else:
            self._count_written()
            if self._is_told:
                note("info", "decision records are written again")
            self._is_told = False

    def _guarded(self, work: Callable[[], None]) -> None:
        """Do what loses no record where it fails; what the disk refuses is tried again."""
        try:
            work()
        except OSError:
            pass
        except Exception as error:  # noqa: BLE001 - the boundary of a background thread
            self._count_fault(error)

    def _next(self) -> tuple[Callable[[], Record] | None, bool]:
        """Return the next record to make, None at the end; or that something of the file is due before one comes."""
        with self._changed:
            while not self._waiting:
                if self._closing:
                    return None, False
                due_s = self._file.due_s()
                if not self._changed.wait(None if due_s is None else max(due_s, self._least_wait_s)):
                    return None, True
            make, characters = self._waiting.popleft()
            self._characters -= characters
            return make, False
