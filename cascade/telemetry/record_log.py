"""Append records to a file that is rotated, from a thread of its own: whoever records never waits for the disk."""

from __future__ import annotations

import asyncio
import contextlib
import os
import stat
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from cascade.errors import ConfigError

__all__ = ["DropReason", "Record", "RecordFile", "RecordLog"]

_MODE: Final = 0o600
_MOST_CHARACTERS: Final = 64_000_000
"""Text that waiting records may hold in memory, whatever their number."""


class DropReason(StrEnum):
    """Why a record was not kept. The list is closed."""

    QUEUE_FULL = "queue_full"
    UNWRITABLE = "unwritable"
    FAULT = "fault"
    SHUTDOWN = "shutdown"


@dataclass(frozen=True, slots=True)
class Record:
    """One line, and the line above it that says what it depends on; each ends with a newline."""

    head: bytes
    line: bytes


class RecordFile:
    """The file that records are appended to, readable by its owner only.

    ``most_bytes`` bounds a file and ``files`` how many are kept, the one being written included: PATH.1 is the
    one before it. A file never begins without the head of its first record. Where PATH was
    moved or removed by another, it is made anew. Only one process may write a file. Raises OSError.
    """

    def __init__(self, path: Path, *, most_bytes: int, files: int) -> None:
        self._path = path
        self._most_bytes = most_bytes
        self._files = files
        self._fd: int | None = None
        self._size = 0
        self._torn = False
        self._heads: set[bytes] = set()

    def append(self, record: Record) -> None:
        """Write a record, and its head where this file does not have it yet."""
        fd = self._fd if self._fd is not None and self._is_at_path(self._fd) else self.open()
        if self._size and self._size + len(self._written(record)) > self._most_bytes:
            fd = self._rotate()
        written = self._written(record)
        whole = os.write(fd, written) == len(written)
        self._torn = not whole
        self._size = os.fstat(fd).st_size
        if not whole:
            raise OSError("the disk took a part only")
        self._heads.add(record.head)

    def open(self) -> int:
        """Open the file to append to it, made where it is not there."""
        self.close()
        fd = self._fd = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK, _MODE)
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            self.close()
            raise OSError("not a regular file")
        os.fchmod(fd, _MODE)
        self._size = found.st_size
        self._torn = bool(self._size) and os.pread(fd, 1, self._size - 1) != b"\n"
        return fd

    def close(self) -> None:
        """Close the file."""
        fd, self._fd = self._fd, None
        self._heads.clear()
        if fd is not None:
            os.close(fd)

    def _written(self, record: Record) -> bytes:
        """Return what is to be written: a torn line before it is ended, so that it spoils no other."""
        head = b"" if record.head in self._heads else record.head
        return (b"\n" if self._torn else b"") + head + record.line

    def _is_at_path(self, fd: int) -> bool:
        with contextlib.suppress(FileNotFoundError):
            there, ours = self._path.stat(), os.fstat(fd)
            return (there.st_dev, there.st_ino) == (ours.st_dev, ours.st_ino)
        return False

    def _rotate(self) -> int:
        self.close()
        names = [self._path, *(self._path.with_name(f"{self._path.name}.{number}") for number in range(1, self._files))]
        names[-1].unlink(missing_ok=True)
        for older, newer in zip(reversed(names[1:]), reversed(names[:-1]), strict=True):
            with contextlib.suppress(FileNotFoundError):
                newer.rename(older)
        return self.open()


class RecordLog:
    """Hand records to a thread that makes and writes them.

    At most ``queue`` records wait; one more is dropped. ``count_written`` and ``count_dropped`` are called
    from any thread, ``count_fault`` for what ``make`` raises. A record that could not be written is dropped, and the file
    is tried again with the next. Raises ConfigError where the file cannot be opened at all.
    """

    def __init__(
        self,
        file: RecordFile,
        *,
        queue: int,
        count_written: Callable[[], None],
        count_dropped: Callable[[DropReason, int], None],
        count_fault: Callable[[BaseException], None],
    ) -> None:
        try:
            file.open()
        except OSError as error:
            raise ConfigError(f"record_file: cannot be opened: {type(error).__name__}") from None
        self._file = file
        self._most = queue
        self._count_written = count_written
        self._count_dropped = count_dropped
        self._count_fault = count_fault
        self._waiting: deque[tuple[Callable[[], Record], int]] = deque()
        self._characters = 0
        self._changed = threading.Condition()
        self._closing = False
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
        while (make := self._next()) is not None:
            try:
                self._file.append(make())
            except OSError:
                self._count_dropped(DropReason.UNWRITABLE, 1)
            except Exception as error:  # noqa: BLE001 - the boundary of a background thread
                self._count_fault(error)
                self._count_dropped(DropReason.FAULT, 1)
            else:
                self._count_written()
        self._file.close()

    def _next(self) -> Callable[[], Record] | None:
        """Return the next record to make, None at the end."""
        with self._changed:
            while not self._waiting:
                if self._closing:
                    return None
                self._changed.wait()
            make, characters = self._waiting.popleft()
            self._characters -= characters
            return make
