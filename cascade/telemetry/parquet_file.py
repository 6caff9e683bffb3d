"""Keep records in Parquet files that are whole, whatever happens to the process.

A Parquet file cannot be read before its end is written. So records are appended to a file of JSON lines, the
*journal*, and as they come a Parquet file is made of it beside; when this is complete it takes its place, and the
journal goes. Whatever a kill leaves is in the journal, where the next process goes on.
"""

from __future__ import annotations

import contextlib
import errno
import importlib.util
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from cascade.errors import ConfigError, lacks_extra
from cascade.telemetry.folders import keep_names
from cascade.telemetry.parquet_of_journal import ParquetOfJournal
from cascade.telemetry.record_file import Record, RecordFile, shifted

__all__ = ["DEFAULT_SECONDS", "ParquetFile", "is_parquet"]

DEFAULT_SECONDS: Final = 3600.0
_STEP_BYTES: Final = 256 * 1024
"""Lines that become rows at a time: some ten milliseconds of the thread."""
_GROUP_BYTES: Final = 8 * 1024 * 1024
"""Lines of a row group, which is held in memory until it is written."""
_RETRY_S: Final = 60.0


def is_parquet(path: Path) -> bool:
    """Tell whether a file of records is to be Parquet, by its name."""
    return path.suffix == ".parquet"


class ParquetFile:
    """Records in files of Parquet: NAME.parquet is the newest, NAME.1.parquet the one before it.

    ``most_bytes`` bounds the journal, NAME.open.jsonl, ``most_seconds`` its age by ``clock``, and ``files`` how many
    there are with it. Where a Parquet file cannot be written the journal grows to its bound; beyond it records are
    refused with OSError, and the Parquet file is tried again every minute. Only one process may write.
    """

    def __init__(
        self,
        path: Path,
        *,
        most_bytes: int,
        files: int,
        most_seconds: float = DEFAULT_SECONDS,
        clock: Callable[[], float] = time.monotonic,
        step_bytes: int = _STEP_BYTES,
        group_bytes: int = _GROUP_BYTES,
    ) -> None:
        stem = path.name.removesuffix(".parquet")
        journal = path.with_name(f"{stem}.open.jsonl")
        self._journal = RecordFile(journal, most_bytes=sys.maxsize, files=1, clock=clock)
        self._closing = path.with_name(f"{stem}.closing.jsonl")
        self._part = path.with_name(f"{stem}.part")
        self._names = [path, *(path.with_name(f"{stem}.{number}.parquet") for number in range(1, files - 1))]
        self._most_bytes = most_bytes
        self._most_seconds = most_seconds
        self._files = files
        self._clock = clock
        self._step_bytes = step_bytes
        self._group_bytes = group_bytes
        self._retry_at: float | None = None
        self._made: ParquetOfJournal | None = None

    def open(self) -> None:
        """Open the journal. Raises OSError, and ConfigError where Parquet cannot be written here."""
        if self._files < 2:
            raise ConfigError("record_files: of Parquet two at least are kept, the one being written among them")
        if importlib.util.find_spec("pyarrow") is None:
            raise lacks_extra("record_file: Parquet needs", "fit")
        self._settle_what_was_left()
        self._journal.open()

    def begin(self) -> None:
        """Import what writes Parquet, before there is a request that would wait for it."""
        import pyarrow.parquet  # noqa: F401

    def append(self, record: Record) -> None:
        """Write a record to the journal, and make a step of the Parquet file."""
        self._journal.current()
        if self._journal.size >= self._most_bytes:
            self._turn()
        self._journal.append(record)
        self._step()
        if self.due_s() == 0.0 or self._journal.size >= self._most_bytes:
            with contextlib.suppress(OSError):  # this record is kept; the next one is told
                self._turn()

    def due_s(self) -> float | None:
        """Return after how many seconds the journal is to be closed, None while nothing is in it."""
        if not self._journal.size:
            return None
        wait_s = 0.0 if self._retry_at is None else self._retry_at - self._clock()
        return max(0.0, self._most_seconds - self._journal.age_s, wait_s)

    def settle(self) -> None:
        """Close a journal that is too old."""
        if self.due_s() == 0.0:
            self._turn()

    def close(self) -> None:
        """Leave the journal to the next process; what was made of it is made again."""
        self._forget()
        self._journal.close()

    def _settle_what_was_left(self) -> None:
        """End the exchange that a kill interrupted. With the part still there, nothing had taken the journal's place."""
        if self._part.exists() and not self._journal.path.exists():
            with contextlib.suppress(FileNotFoundError):
                self._closing.rename(self._journal.path)
        if self._closing.exists():
            self._end_closing()
        self._part.unlink(missing_ok=True)

    def _step(self) -> None:
        """Make rows of some more lines, where there are enough of them. A failure is tried again when it matters."""
        if self._retry_at is None and self._of_journal().pending(self._journal.size) >= self._step_bytes:
            try:
                self._of_journal().step(self._step_bytes)
            except Exception:  # noqa: BLE001 - the record is in the journal, and closing it tells what fails
                self._forget()
                self._retry_at = self._clock()

    def _turn(self) -> None:
        """Let a Parquet file take the journal's place. Raises what kept it from being written."""
        now = self._clock()
        if self._retry_at is not None and now < self._retry_at:
            raise OSError(errno.EIO, "the last Parquet file could not be written")
        self._retry_at = now + _RETRY_S
        try:
            self._names[-1].unlink(missing_ok=True)  # before the disk is needed
            made = self._of_journal()
            while made.step(self._step_bytes):
                pass
            made.finish()
            self._exchange()
        except BaseException:
            self._forget()
            raise
        self._made = self._retry_at = None
        self._journal.open()

    def _exchange(self) -> None:
        self._journal.close()
        try:
            self._journal.path.rename(self._closing)
            shifted(self._names)
            self._part.rename(self._names[0])
        except OSError:
            if not self._journal.path.exists():
                self._closing.rename(self._journal.path)
            raise
        with contextlib.suppress(OSError):  # the next start removes it
            self._end_closing()

    def _end_closing(self) -> None:
        """Let go of the journal whose place a Parquet file has, once the disk has that."""
        keep_names(self._closing.parent)
        self._closing.unlink(missing_ok=True)

    def _of_journal(self) -> ParquetOfJournal:
        """Return the Parquet file that is made of the journal; begun anew where the journal is another."""
        made = self._made
        if made is None or made.opened != self._journal.opened:
            self._forget()
            made = self._made = ParquetOfJournal(self._journal, self._part, self._group_bytes)
        return made

    def _forget(self) -> None:
        made, self._made = self._made, None
        if made is not None:
            made.abandon()
