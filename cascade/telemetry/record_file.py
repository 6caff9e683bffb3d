"""Append records to a file of JSON lines that is rotated by size and age."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import stat
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final, Protocol

import orjson

__all__ = ["FILE_MODE", "Record", "RecordFile", "RecordSink", "shifted"]

FILE_MODE: Final = 0o600
_LINES_BEFORE_A_RECORD: Final = 8
_MOST_LINE_BYTES: Final = 16_000_000


@dataclass(frozen=True, slots=True)
class Record:
    """One line, and the line above it that says what it depends on; each ends with a newline."""

    head: bytes
    line: bytes


class RecordSink(Protocol):
    """Where the writing thread puts records. Everything but ``open`` is called in that thread."""

    def open(self) -> object:
        """Find out, at the start, whether records can be kept here. Raises OSError or ConfigError."""
        ...

    def begin(self) -> None:
        """Get ready what only the writing thread needs."""
        ...

    def append(self, record: Record) -> None:
        """Write a record. Raises OSError where it is not kept."""
        ...

    def due_s(self) -> float | None:
        """Return after how many seconds `settle` has something to do though no record comes, None for never."""
        ...

    def settle(self) -> None:
        """Do what is due by its age. Raises OSError."""
        ...

    def close(self) -> None:
        """Close what is open."""
        ...


class RecordFile:
    """The file that records are appended to, readable by its owner only.

    ``most_bytes`` bounds a file and ``files`` how many are kept, the one being written included: PATH.1 is the
    one before it. ``most_seconds`` bounds how old its first record gets, by ``clock``; None is for ever. Of a file that
    another process began that is told by the record's own time, held against ``now``. A file never
    begins without the head of its first record. Where PATH was moved, removed or cut short by another, it is begun anew. Only
    one process may write a file. Raises OSError.
    """

    def __init__(
        self,
        path: Path,
        *,
        most_bytes: int,
        files: int,
        most_seconds: float | None = None,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.path = path
        self.size = 0
        self.opened = 0
        self._most_bytes = most_bytes
        self._files = files
        self._most_seconds = most_seconds
        self._clock = clock
        self._now = now
        self._fd: int | None = None
        self._began = 0.0
        self._torn = False
        self._heads: set[bytes] = set()

    def begin(self) -> None:
        """Need nothing."""

    def append(self, record: Record) -> None:
        """Write a record, and its head where this file does not have it yet."""
        fd = self.current()
        is_full = self.size + len(self._written(record)) > self._most_bytes
        if self.size and (is_full or self.due_s() == 0.0):
            fd = self._rotate()
        if not self.size:
            self._began = self._clock()
        written = self._written(record)
        whole = os.write(fd, written) == len(written)
        self._torn = not whole
        self.size = os.fstat(fd).st_size
        if not whole:
            raise OSError(errno.ENOSPC, "the disk took a part only")
        self._heads.add(record.head)

    def current(self) -> int:
        """Return the open file at the path, made anew where another took it away, or what was in it."""
        return self._fd if self._fd is not None and self._is_as_left(self._fd) else self.open()

    def open(self) -> int:
        """Open the file to append to it, made where it is not there. ``opened`` counts how often."""
        self.close()
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK
        fd = self._fd = os.open(self.path, flags, FILE_MODE)
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            self.close()
            raise OSError(errno.EINVAL, "not a regular file")
        os.fchmod(fd, FILE_MODE)
        self.opened += 1
        self.size = found.st_size
        self._began = self._clock() - self._age_found()
        self._torn = bool(self.size) and os.pread(fd, 1, self.size - 1) != b"\n"
        return fd

    def due_s(self) -> float | None:
        """Return after how many seconds the file is too old, None where none is or nothing is in it."""
        if self._most_seconds is None or not self.size:
            return None
        return max(0.0, self._most_seconds - self.age_s)

    @property
    def age_s(self) -> float:
        """Return how old the file's first record is."""
        return self._clock() - self._began

    def settle(self) -> None:
        """Rotate a file that is too old."""
        if self.due_s() == 0.0:
            self._rotate()

    def close(self) -> None:
        """Close the file."""
        fd, self._fd = self._fd, None
        self._heads.clear()
        if fd is not None:
            os.close(fd)

    def _age_found(self) -> float:
        """Return how old the first record of the file at the path is; 0 where that cannot be told."""
        if not self.size:
            return 0.0
        with contextlib.suppress(OSError, ValueError, TypeError), self.path.open("rb") as file:
            for line in itertools.islice(iter(lambda: file.readline(_MOST_LINE_BYTES), b""), _LINES_BEFORE_A_RECORD):
                told = orjson.loads(line)
                if isinstance(told, dict) and "time" in told:
                    return max(0.0, self._now() - datetime.fromisoformat(told["time"]).timestamp())
        return 0.0

    def _written(self, record: Record) -> bytes:
        """Return what is to be written: a torn line before it is ended, so that it spoils no other."""
        head = b"" if record.head in self._heads else record.head
        return (b"\n" if self._torn else b"") + head + record.line

    def _is_as_left(self, fd: int) -> bool:
        with contextlib.suppress(FileNotFoundError):
            there, ours = self.path.stat(), os.fstat(fd)
            return (there.st_dev, there.st_ino) == (ours.st_dev, ours.st_ino) and ours.st_size >= self.size
        return False

    def _rotate(self) -> int:
        self.close()
        shifted([self.path, *(self.path.with_name(f"{self.path.name}.{number}") for number in range(1, self._files))])
        return self.open()


def shifted(names: Sequence[Path]) -> None:
    """Move each file to the next name, so that the first is free; the last one goes. Raises OSError."""
    names[-1].unlink(missing_ok=True)
    for older, newer in zip(reversed(names[1:]), reversed(names[:-1]), strict=True):
        with contextlib.suppress(FileNotFoundError):
            newer.rename(older)
