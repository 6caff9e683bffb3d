"""The file of records, and the thread that writes it."""

from __future__ import annotations

import asyncio
import io
import os
import resource
import stat
import threading
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import orjson
import pytest

from cascade.errors import ConfigError
from cascade.telemetry.logs import configure_logging
from cascade.telemetry.record_file import Record, RecordFile
from cascade.telemetry.record_log import DropReason, RecordLog

_HEAD = b"head\n"


def _record(line: str, head: bytes = _HEAD) -> Record:
    return Record(head, f"{line}\n".encode())


def _file(path: Path, most_bytes: int = 1_000_000, files: int = 3) -> RecordFile:
    return RecordFile(path, most_bytes=most_bytes, files=files)


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines()


def test_a_head_is_written_once_a_file_above_its_records(tmp_path: Path) -> None:
    """Records of one head share it; another head comes above its first record."""
    path = tmp_path / "r.jsonl"
    file = _file(path)
    for record in (_record("1"), _record("2"), _record("3", b"other\n"), _record("4")):
        file.append(record)
    file.close()
    assert _lines(path) == ["head", "1", "2", "other", "3", "4"]


def test_a_file_that_is_there_is_appended_to_under_a_head_of_its_own(tmp_path: Path) -> None:
    """After a restart the records before stay, and those after do not depend on them."""
    path = tmp_path / "r.jsonl"
    for line in ("1", "2"):
        file = _file(path)
        file.append(_record(line))
        file.close()
    assert _lines(path) == ["head", "1", "head", "2"]


def test_only_the_owner_may_read_records(tmp_path: Path) -> None:
    """A file that was wider open is closed to others, and rotated files are as the first."""
    path = tmp_path / "r.jsonl"
    path.touch(0o644)
    file = _file(path, most_bytes=8)
    file.append(_record("1"))
    file.append(_record("2"))
    file.close()
    assert [stat.S_IMODE(each.stat().st_mode) for each in sorted(tmp_path.iterdir())] == [0o600, 0o600]


def test_full_files_are_rotated_and_the_oldest_goes(tmp_path: Path) -> None:
    """PATH.1 is the one before; each begins with its head, none is over its size, and no more are kept than asked."""
    path = tmp_path / "r.jsonl"
    file = _file(path, most_bytes=9, files=3)
    for line in "123456789":
        file.append(_record(line))
    file.close()
    assert {each.name: _lines(each) for each in tmp_path.iterdir()} == {
        "r.jsonl": ["head", "9"],
        "r.jsonl.1": ["head", "7", "8"],
        "r.jsonl.2": ["head", "5", "6"],
    }
    assert all(each.stat().st_size <= 9 for each in tmp_path.iterdir())


def test_of_one_file_kept_the_full_one_is_begun_anew(tmp_path: Path) -> None:
    """With one file there is no other beside it."""
    path = tmp_path / "r.jsonl"
    file = _file(path, most_bytes=9, files=1)
    for line in "12345":
        file.append(_record(line))
    file.close()
    assert [each.name for each in tmp_path.iterdir()] == ["r.jsonl"]
    assert _lines(path) == ["head", "5"]


def test_a_record_over_the_size_has_a_file_of_its_own(tmp_path: Path) -> None:
    """It is written whole: a size bounds when a file is rotated, not what a record may be."""
    path = tmp_path / "r.jsonl"
    file = _file(path, most_bytes=9)
    for line in ("1" * 50, "2"):
        file.append(_record(line))
    file.close()
    assert _lines(tmp_path / "r.jsonl.1") == ["head", "1" * 50]
    assert _lines(path) == ["head", "2"]


@pytest.mark.parametrize(
    "away",
    [Path.unlink, lambda path: path.rename(path.with_name("elsewhere")), lambda path: path.write_bytes(b"")],
    ids=["removed", "moved", "cut short"],
)
def test_a_file_that_another_took_away_or_cut_short_is_begun_anew(
    tmp_path: Path, away: Callable[[Path], object]
) -> None:
    """What rotates logs from outside finds the next record in a new file, with its head."""
    path = tmp_path / "r.jsonl"
    file = _file(path)
    file.append(_record("1"))
    away(path)
    file.append(_record("2"))
    file.close()
    assert _lines(path) == ["head", "2"]


def test_a_torn_last_line_spoils_no_other(tmp_path: Path) -> None:
    """A process that was killed in a line leaves it; the next one ends it before it writes."""
    path = tmp_path / "r.jsonl"
    path.write_text("head\n1\ntor")
    file = _file(path)
    file.append(_record("2"))
    file.close()
    assert _lines(path) == ["head", "1", "tor", "head", "2"]


def test_a_line_that_the_disk_took_in_part_spoils_no_other(tmp_path: Path) -> None:
    """The record is told as not written; the next one begins a line of its own, under its head."""
    path = tmp_path / "r.jsonl"
    file = _file(path)
    file.append(_record("1"))
    _limit_at(path.stat().st_size + 3)
    try:
        with pytest.raises(OSError, match="part"):
            file.append(_record("222222", b"other\n"))
    finally:
        _limit_at(None)
    file.append(_record("3", b"other\n"))
    file.close()
    assert _lines(path) == ["head", "1", "oth", "other", "3"]


def _limit_at(size: int | None) -> None:
    """Let this process's files grow to a size only, as a full disk does, or as they like."""
    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most if size is None else size, most))


class _Counts:
    """What a log counts."""

    def __init__(self) -> None:
        self.written = 0
        self.dropped: Counter[DropReason] = Counter()
        self.faults: list[BaseException] = []

    def count(self) -> None:
        """Count one written."""
        self.written += 1

    def drop(self, reason: DropReason, count: int) -> None:
        """Count some dropped."""
        self.dropped[reason] += count

    def log(self, path: Path, queue: int = 10) -> RecordLog:
        """Return a log that counts here."""
        return RecordLog(
            _file(path),
            queue=queue,
            count_written=self.count,
            count_dropped=self.drop,
            count_fault=self.faults.append,
        )


async def test_records_are_made_and_written_in_their_order_by_another_thread(tmp_path: Path) -> None:
    """What waits at the close is written before it ends."""
    counts = _Counts()
    log = counts.log(tmp_path / "r.jsonl")
    threads: set[int] = set()

    def make(line: str) -> Record:
        threads.add(threading.get_ident())
        return _record(line)

    for line in "12345":
        log.offer(lambda line=line: make(line), 1)  # type: ignore[misc]
    await log.aclose(5.0)
    assert _lines(tmp_path / "r.jsonl") == ["head", "1", "2", "3", "4", "5"]
    assert threading.get_ident() not in threads
    assert (counts.written, counts.dropped, counts.faults) == (5, {}, [])


async def test_a_slow_disk_drops_records_and_delays_nobody(tmp_path: Path) -> None:
    """While the writer is stuck, as many wait as may, the rest is dropped at once, and none is written twice."""
    counts = _Counts()
    log = counts.log(tmp_path / "r.jsonl", queue=2)
    stuck, free = threading.Event(), threading.Event()

    def slow() -> Record:
        stuck.set()
        free.wait(30)
        return _record("slow")

    log.offer(slow, 1)
    assert stuck.wait(30)
    for number in range(5):
        log.offer(lambda number=number: _record(str(number)), 1)  # type: ignore[misc]
    assert counts.dropped == {DropReason.QUEUE_FULL: 3}
    free.set()
    await log.aclose(30.0)
    assert _lines(tmp_path / "r.jsonl") == ["head", "slow", "0", "1"]
    assert counts.written == 3


async def test_records_of_very_long_texts_are_dropped_before_they_fill_the_memory(tmp_path: Path) -> None:
    """Text that waits is bounded whatever the number of records."""
    counts = _Counts()
    log = counts.log(tmp_path / "r.jsonl")
    log.offer(lambda: _record("long"), 64_000_001)
    assert counts.dropped == {DropReason.QUEUE_FULL: 1}
    log.offer(lambda: _record("short"), 1000)
    await log.aclose(5.0)
    assert _lines(tmp_path / "r.jsonl") == ["head", "short"]


async def test_a_record_that_cannot_be_made_is_a_fault_and_the_next_is_written(tmp_path: Path) -> None:
    """A fault of ours costs one record."""
    counts = _Counts()
    log = counts.log(tmp_path / "r.jsonl")
    log.offer(lambda: _record(1 / 0), 1)  # type: ignore[arg-type]
    log.offer(lambda: _record("2"), 1)
    await log.aclose(5.0)
    assert _lines(tmp_path / "r.jsonl") == ["head", "2"]
    assert [type(fault) for fault in counts.faults] == [ZeroDivisionError]
    assert counts.dropped == {DropReason.FAULT: 1}


async def test_a_file_that_cannot_be_written_is_tried_again_with_each_record(tmp_path: Path) -> None:
    """While its folder is away records are dropped, which is told once; once it is back they are kept, and that is told too."""
    stream = io.BytesIO()
    configure_logging("info", stream)
    counts = _Counts()
    folder = tmp_path / "records"
    folder.mkdir()
    log = counts.log(folder / "r.jsonl")
    gone = threading.Event()

    def tell() -> Record:
        gone.set()
        return _record("2")

    folder.rename(tmp_path / "away")
    log.offer(lambda: _record("1"), 1)
    log.offer(tell, 1)
    assert gone.wait(30)
    back = threading.Event()

    def restore() -> Record:
        folder.mkdir()
        back.set()
        return _record("3")

    log.offer(restore, 1)
    await log.aclose(30.0)
    assert back.is_set()
    assert counts.dropped == {DropReason.UNWRITABLE: 2}
    assert _lines(folder / "r.jsonl") == ["head", "3"]
    told = [(line["event"], line.get("why")) for line in map(orjson.loads, stream.getvalue().splitlines())]
    assert told == [
        ("decision records cannot be written, and are dropped", "No such file or directory"),
        ("decision records are written again", None),
    ]


async def test_a_close_waits_for_a_stuck_disk_no_longer_than_it_may(tmp_path: Path) -> None:
    """What still waits then is dropped and counted, as is what comes after."""
    counts = _Counts()
    log = counts.log(tmp_path / "r.jsonl")
    stuck, free = threading.Event(), threading.Event()

    def slow() -> Record:
        stuck.set()
        free.wait(30)
        return _record("slow")

    log.offer(slow, 1)
    assert stuck.wait(30)
    log.offer(lambda: _record("1"), 1)
    await log.aclose(0.01)
    log.offer(lambda: _record("2"), 1)
    assert counts.dropped == {DropReason.SHUTDOWN: 2}
    free.set()
    await log.aclose(30.0)
    assert _lines(tmp_path / "r.jsonl") == ["head", "slow"]


class _Aging:
    """A file that is due once it has a record, and whose getting ready fails as the test says."""

    def __init__(self, fails: Exception | None = None) -> None:
        self.fails = fails
        self.kept: list[bytes] = []
        self.settled = threading.Event()
        self.due: float | None = None

    def open(self) -> None:
        """Be there."""

    def begin(self) -> None:
        """Fail, or not."""
        if self.fails is not None:
            raise self.fails

    def append(self, record: Record) -> None:
        """Keep one."""
        self.kept.append(record.line)
        self.due = 0.0

    def due_s(self) -> float | None:
        """Tell what the last record or look made of it."""
        return self.due

    def settle(self) -> None:
        """Be looked at once, and fail."""
        self.due = None
        self.settled.set()
        raise OSError

    def close(self) -> None:
        """Fail, as a disk does that was taken away."""
        raise OSError


@pytest.mark.parametrize(("fails", "faults"), [(None, 0), (OSError(), 0), (ImportError(), 1)])
async def test_what_is_due_by_age_is_done_though_no_record_comes(fails: Exception | None, faults: int) -> None:
    """What fails meanwhile costs no record; a fault that is not the disk's is counted."""
    counts, file = _Counts(), _Aging(fails)
    log = RecordLog(
        file,
        queue=10,
        count_written=counts.count,
        count_dropped=counts.drop,
        count_fault=counts.faults.append,
        least_wait_s=0.001,
    )
    log.offer(lambda: _record("1"), 1)
    assert await asyncio.to_thread(file.settled.wait, 30)
    log.offer(lambda: _record("2"), 1)
    await log.aclose(5.0)
    assert file.kept == [b"1\n", b"2\n"]
    assert (counts.written, counts.dropped, len(counts.faults)) == (2, {}, faults)


def test_an_old_file_is_rotated(tmp_path: Path) -> None:
    """By the age of its first record: with the next one, or without; an empty one has no age."""
    now = [0.0]
    file = RecordFile(tmp_path / "r", most_bytes=1000, files=3, most_seconds=60.0, clock=lambda: now[0])
    file.open()
    assert file.due_s() is None
    now[0] = 100.0
    file.append(_record("1"))
    now[0] = 159.0
    file.settle()
    assert file.due_s() == 1.0
    file.append(_record("2"))
    now[0] = 160.0
    file.settle()
    assert (_lines(tmp_path / "r.1"), _lines(tmp_path / "r"), file.due_s()) == (["head", "1", "2"], [], None)
    file.append(_record("3"))
    now[0] = 220.0
    file.append(_record("4"))
    file.close()
    assert [_lines(tmp_path / name) for name in ("r.2", "r.1", "r")] == [
        ["head", "1", "2"],
        ["head", "3"],
        ["head", "4"],
    ]


@pytest.mark.parametrize(
    ("first", "due_s"),
    [
        ('{"time":"2026-11-30T08:00:00.000+00:00"}', 20.0),
        ('{"time":"2026-11-30T07:00:00.000+00:00"}', 0.0),
        ('{"time":"2026-11-30T09:00:00.000+00:00"}', 60.0),  # of a clock that was ahead
        ('{"time":7}', 60.0),
        ("no record", 60.0),
    ],
)
def test_a_file_that_another_process_began_is_as_old_as_its_first_record(
    tmp_path: Path, first: str, due_s: float
) -> None:
    """Else a process that is restarted often would never rotate it. Where its age cannot be told it begins now."""
    path = tmp_path / "r"
    path.write_text(f'{{"kind":"head"}}\n{first}\n{{"time":"2026-11-30T08:00:39.000+00:00"}}\n')
    wall = datetime(2026, 11, 30, 8, 0, 40, tzinfo=UTC).timestamp()
    file = RecordFile(path, most_bytes=1000, files=3, most_seconds=60.0, clock=lambda: 7.0, now=lambda: wall)
    file.open()
    assert file.due_s() == due_s
    file.close()


def test_a_file_that_cannot_be_opened_at_all_is_told_at_the_start(tmp_path: Path) -> None:
    """A folder that is not there, a folder in its place and a pipe are each a setting that cannot be used."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in (tmp_path / "none" / "r.jsonl", tmp_path, pipe):
        with pytest.raises(ConfigError, match=r"^record_file: cannot be opened: "):
            _Counts().log(path)


def test_a_file_whose_kind_changed_while_open_is_refused(tmp_path: Path) -> None:
    """A device in the file's place is not written to."""
    path = tmp_path / "r.jsonl"
    file = _file(path)
    file.append(_record("1"))
    path.unlink()
    path.symlink_to("/dev/null")
    with pytest.raises(OSError, match="regular"):
        file.append(_record("2"))
