"""Make a Parquet file of a journal of records, step by step while the journal grows."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any, BinaryIO

from cascade.telemetry.record_file import FILE_MODE, RecordFile
from cascade.telemetry.record_parquet import joined, record_schema, record_table, writer_of

__all__ = ["ParquetOfJournal"]


class ParquetOfJournal:
    """A Parquet file that is being made of a journal, in ``part``. Raises OSError.

    Of the journal, at most ``group_bytes`` and a step of lines are held as rows until they are written as a row group.
    ``opened`` is how often the journal had been opened: it tells it from the one that comes after it.
    """

    def __init__(self, journal: RecordFile, part: Path, group_bytes: int) -> None:
        self.opened = journal.opened
        self._journal = journal.path
        self._part = part
        self._group_bytes = group_bytes
        self._schema = record_schema()
        self._at = 0
        self._tables: list[Any] = []
        self._held = 0
        self._open: tuple[BinaryIO, Any] | None = None

    def pending(self, size: int) -> int:
        """Return how many bytes of a journal of this size are no rows yet."""
        return size - self._at

    def step(self, most_bytes: int) -> bool:
        """Make rows of some lines, at least one; tell whether there was any."""
        with self._journal.open("rb") as file:
            file.seek(self._at)
            lines = file.readlines(most_bytes)
        read = sum(map(len, lines))
        if read:
            self._tables.append(record_table(lines, self._schema))
            self._at += read
            self._held += read
        if self._held >= self._group_bytes:
            self._write_group()
        return bool(read)

    def finish(self) -> None:
        """Write what is left and the end, and have the disk keep it."""
        file, writer = self._write_group()
        writer.close()
        file.flush()
        os.fsync(file.fileno())
        file.close()

    def abandon(self) -> None:
        """Throw away what was made."""
        if self._open is not None:
            file, writer = self._open
            for one in (writer, file):
                with contextlib.suppress(Exception):
                    one.close()
        with contextlib.suppress(OSError):
            self._part.unlink(missing_ok=True)

    def _write_group(self) -> tuple[BinaryIO, Any]:
        if self._open is None:
            self._part.unlink(missing_ok=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            file = os.fdopen(os.open(self._part, flags, FILE_MODE), "wb")
            self._open = file, writer_of(file, self._schema)
        if self._tables:
            self._open[1].write_table(joined(self._tables))
        self._tables, self._held = [], 0
        return self._open
