"""Records in Parquet files that are whole, whatever happens to the process."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import orjson
import pyarrow.parquet as pq
import pytest

from cascade.errors import ConfigError
from cascade.replay.record_files import lines_of
from cascade.telemetry.parquet_file import ParquetFile, is_parquet
from cascade.telemetry.record_file import RecordFile
from tests.telemetry.recorded_lines import CANARY_TEXT, every_record, plain_record

_TORN: Final = b'{"kind":"deci'


class _Clock:
    """A clock that is set by hand."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


class Opened:
    """Open files of records in a folder; all are closed at the end of the test."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = _Clock()
        self.files: list[ParquetFile] = []

    def __call__(self, **changes: Any) -> ParquetFile:
        """Open one of 6,000 bytes and a minute, as a process does that finds what another left."""
        fields: dict[str, Any] = {
            "clock": self.clock,
            "most_bytes": 6000,
            "files": 4,
            "most_seconds": 60.0,
            "step_bytes": 1500,
            "group_bytes": 3000,
        }
        file = ParquetFile(self.folder / "r.parquet", **fields | changes)
        file.open()
        file.begin()
        self.files.append(file)
        return file


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Opened]:
    """Give what opens files."""
    found = Opened(tmp_path)
    yield found
    for file in found.files:
        file.close()


def _ids(paths: Sequence[Path]) -> list[str]:
    """Return the ids of the decisions in some files."""
    lines = [line for path in paths for line in lines_of(path)]
    read = [orjson.loads(line) for line in lines if line.rstrip() != _TORN]
    return [line["decision_id"] for line in read if line["kind"] == "decision"]


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def _oldest_first(folder: Path) -> list[Path]:
    return [path for name in ("r.2", "r.1", "r") if (path := folder / f"{name}.parquet").exists()]


def test_full_files_become_parquet_and_the_oldest_goes(opened: Opened, tmp_path: Path) -> None:
    """At any time each record kept is in one file, whole and under its head; of four files three are closed."""
    file = opened()
    written: list[str] = []
    for number in range(60):
        file.append(plain_record(f"id-{number}", "sha256:a" if number % 2 else "sha256:b"))
        written.append(f"id-{number}")
        kept = _ids([*_oldest_first(tmp_path), tmp_path / "r.open.jsonl"])
        assert kept == written[-len(kept) :]
        assert len(kept) >= min(number + 1, 9)
    file.close()
    assert _names(tmp_path) == ["r.1.parquet", "r.2.parquet", "r.open.jsonl", "r.parquet"]
    for path in _oldest_first(tmp_path):
        first, *_ = map(orjson.loads, lines_of(path))
        assert first["kind"] == "head"
        heads = {line["id"] for line in map(orjson.loads, lines_of(path)) if line["kind"] == "head"}
        assert {line["head"] for line in map(orjson.loads, lines_of(path)) if line["kind"] == "decision"} <= heads
        assert pq.ParquetFile(path).num_row_groups == 2


def test_a_parquet_file_says_what_the_file_of_lines_does(opened: Opened, tmp_path: Path) -> None:
    """The same records written to both are the same lines."""
    lines = RecordFile(tmp_path / "r.jsonl", most_bytes=10**9, files=1)
    clock = opened.clock
    parquet = opened(most_bytes=10**9)
    for record in every_record():
        lines.append(record)
        parquet.append(record)
    clock.now = 60.0
    parquet.settle()
    written, back = ([orjson.loads(line) for line in lines_of(tmp_path / name)] for name in ("r.jsonl", "r.parquet"))
    assert back == written
    assert len(back) == 9


def test_no_text_is_in_any_file(opened: Opened, tmp_path: Path) -> None:
    """Neither the journal, nor what is made beside it, nor the closed file holds any, compressed or not."""
    clock = opened.clock
    file = opened(most_bytes=10**9, step_bytes=1, group_bytes=1)
    for record in every_record():
        file.append(record)
    seen = [path.read_bytes() for path in tmp_path.iterdir()]
    clock.now = 60.0
    file.settle()
    seen += [path.read_bytes() for path in tmp_path.iterdir()]
    rows = pq.ParquetFile(tmp_path / "r.parquet").read().to_pylist()
    assert len(rows) > 7
    assert len(seen) == 4
    assert CANARY_TEXT.encode() not in b"".join(seen) + repr(rows).encode()


def test_a_file_is_closed_by_its_age_though_no_record_comes(opened: Opened, tmp_path: Path) -> None:
    """An empty journal has no age; an old one becomes Parquet, with the next record or without."""
    clock = opened.clock
    file = opened()
    clock.now = 1000.0
    file.settle()
    assert (file.due_s(), _names(tmp_path)) == (None, ["r.open.jsonl"])
    file.append(plain_record("1"))
    clock.now = 1059.0
    file.settle()
    assert (file.due_s(), _names(tmp_path)) == (1.0, ["r.open.jsonl"])
    clock.now = 1060.0
    file.settle()
    assert (file.due_s(), _ids([tmp_path / "r.parquet"])) == (None, ["1"])
    file.append(plain_record("2"))
    clock.now = 1120.0
    file.append(plain_record("3"))
    assert _ids([tmp_path / "r.1.parquet", tmp_path / "r.parquet", tmp_path / "r.open.jsonl"]) == ["1", "2", "3"]


def test_what_a_kill_leaves_is_gone_on_with(opened: Opened, tmp_path: Path) -> None:
    """A process that ends without a word loses nothing that was written, a torn last line apart."""
    left = opened(most_bytes=15_000)
    a = [f"a{number}" for number in range(9)]
    for name in a:
        left.append(plain_record(name))
    assert _names(tmp_path) == ["r.open.jsonl", "r.part"]
    with (tmp_path / "r.open.jsonl").open("ab") as journal:
        journal.write(_TORN)
    file = opened(most_bytes=15_000)
    assert "r.part" not in _names(tmp_path)
    b = [f"b{number}" for number in range(9)]
    for name in b:
        file.append(plain_record(name))
    file.close()
    assert _ids([*_oldest_first(tmp_path), tmp_path / "r.open.jsonl"]) == [*a, *b]


def test_of_a_process_that_is_killed_every_record_written_is_there(opened: Opened, tmp_path: Path) -> None:
    """SIGKILL behind the twentieth record: it is in the journal or in a whole Parquet file, and goes on from there."""
    killed = subprocess.run(
        [sys.executable, "-c", _KILLED, str(tmp_path / "r.parquet")], cwd=Path.cwd(), check=False, timeout=60
    )
    assert killed.returncode == -signal.SIGKILL
    file = opened()
    file.append(plain_record("after"))
    kept = _ids([*_oldest_first(tmp_path), tmp_path / "r.open.jsonl"])
    assert kept[-2:] == ["19", "after"]
    assert kept == [*map(str, range(20)), "after"][-len(kept) :]
    assert len(kept) > 10


_KILLED: Final = """
import os, signal, sys
from pathlib import Path
from cascade.telemetry.parquet_file import ParquetFile
from tests.telemetry.recorded_lines import plain_record
file = ParquetFile(Path(sys.argv[1]), most_bytes=6000, files=4, step_bytes=1500, group_bytes=3000)
file.open()
for number in range(20):
    file.append(plain_record(str(number)))
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize(
    ("left", "kept"),
    [
        (("closing", "part"), ["old", "new"]),
        (("closing",), ["old"]),
        (("closing", "part", "open"), ["old", "new"]),
        (("part", "open"), ["old", "new"]),
        (("part",), ["old"]),
    ],
)
def test_an_exchange_that_a_kill_interrupted_is_ended(
    opened: Opened, tmp_path: Path, left: tuple[str, ...], kept: list[str]
) -> None:
    """The journal goes once its Parquet file has its place and not before: nothing is lost and nothing twice.

    ``old`` was exchanged before the kill, ``new`` is in the journal, wherever that was.
    """
    clock = opened.clock
    file = opened()
    file.append(plain_record("old"))
    clock.now = 60.0
    file.settle()
    file.append(plain_record("new"))
    file.close()
    journal, closing = tmp_path / "r.open.jsonl", tmp_path / "r.closing.jsonl"
    if "closing" in left:
        closing.write_bytes(journal.read_bytes() if "open" not in left else b"exchanged already")
    if "open" not in left:
        journal.unlink()
    if "part" in left:
        (tmp_path / "r.part").write_bytes(b"PAR1")
    opened().close()
    assert _names(tmp_path) == ["r.open.jsonl", "r.parquet"]
    assert _ids([tmp_path / "r.parquet", journal]) == kept


def test_a_parquet_file_that_cannot_be_written_costs_no_record_before_the_bound(opened: Opened, tmp_path: Path) -> None:
    """The journal grows to its bound, then records are refused, and once the disk has room all goes on."""
    clock = opened.clock
    file = opened()
    (tmp_path / "r.part").mkdir()
    refused = []
    for number in range(20):
        try:
            file.append(plain_record(f"a{number}"))
        except OSError:
            refused.append(number)
    assert refused
    assert refused == list(range(refused[0], 20))
    assert (tmp_path / "r.open.jsonl").stat().st_size >= 6000
    assert not (tmp_path / "r.parquet").exists()
    (tmp_path / "r.part").rmdir()
    with pytest.raises(OSError, match="could not be written"):
        file.append(plain_record("too soon"))
    clock.now = 60.0
    file.append(plain_record("b"))
    assert _ids([tmp_path / "r.parquet", tmp_path / "r.open.jsonl"]) == [
        f"a{number}" for number in range(refused[0])
    ] + ["b"]


def test_an_exchange_that_fails_leaves_the_journal(opened: Opened, tmp_path: Path) -> None:
    """Where the names cannot be changed the record stays where it is, and a minute later it is tried again."""
    file = opened()
    (tmp_path / "r.closing.jsonl").mkdir()
    file.append(plain_record("1"))
    opened.clock.now = 60.0
    with pytest.raises(IsADirectoryError):
        file.settle()
    file.append(plain_record("2"))
    assert _names(tmp_path) == ["r.closing.jsonl", "r.open.jsonl"]
    assert _ids([tmp_path / "r.open.jsonl"]) == ["1", "2"]
    (tmp_path / "r.closing.jsonl").rmdir()
    opened.clock.now = 120.0
    file.append(plain_record("3"))
    assert _ids([tmp_path / "r.parquet", tmp_path / "r.open.jsonl"]) == ["1", "2", "3"]


@pytest.mark.parametrize(
    "away", [Path.unlink, lambda path: path.rename(path.with_name("elsewhere")), lambda path: path.write_bytes(b"")]
)
def test_a_journal_that_another_took_away_or_cut_short_is_begun_anew(opened: Opened, tmp_path: Path, away: Any) -> None:
    """What was in it is whoever's took it; no Parquet file is made of it."""
    clock = opened.clock
    file = opened()
    for number in range(5):
        file.append(plain_record(f"a{number}"))
    away(tmp_path / "r.open.jsonl")
    file.append(plain_record("b"))
    clock.now = 60.0
    file.settle()
    assert _ids([tmp_path / "r.parquet"]) == ["b"]


def test_only_the_owner_may_read_what_is_written(opened: Opened, tmp_path: Path) -> None:
    """Journal, part and closed files alike, whatever the mask of the process."""
    file = opened()
    while not {"r.open.jsonl", "r.parquet", "r.part"} <= set(_names(tmp_path)):
        file.append(plain_record("1"))
    assert {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()} == {0o600}


def test_parquet_needs_its_library_and_two_files(
    opened: Opened, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Either is told at the start."""
    with pytest.raises(ConfigError, match="record_files: of Parquet two at least"):
        opened(files=1)
    monkeypatch.setitem(sys.modules, "pyarrow", None)  # what makes an import fail
    with pytest.raises(ConfigError, match=r"^record_file: Parquet needs cascade-rerank\[fit\]; in a clone: "):
        opened()
    assert _names(tmp_path) == []


def test_pyarrow_is_imported_by_the_writing_thread_alone(tmp_path: Path) -> None:
    """Serving, lines of JSON and opening a Parquet file do without it."""
    done = subprocess.run([sys.executable, "-c", _IMPORTING, str(tmp_path)], check=False, timeout=60)
    assert done.returncode == 0


_IMPORTING: Final = """
import sys
from pathlib import Path
import cascade.server.recording
from cascade.telemetry.parquet_file import ParquetFile
from cascade.telemetry.record_file import RecordFile
folder = Path(sys.argv[1])
lines = RecordFile(folder / "r.jsonl", most_bytes=1000, files=2)
parquet = ParquetFile(folder / "r.parquet", most_bytes=1000, files=2)
lines.open(), lines.begin(), parquet.open()
assert "pyarrow" not in sys.modules
parquet.begin()
assert "pyarrow" in sys.modules
lines.close(), parquet.close()
"""


def test_a_name_tells_the_format() -> None:
    """The ending alone."""
    assert [is_parquet(Path(name)) for name in ("a.parquet", "a.jsonl", "parquet", "a.parquet.1")] == [
        True,
        False,
        False,
        False,
    ]


def test_the_journal_goes_only_once_the_disk_has_the_new_names(
    opened: Opened, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the disk could have its removal and not yet what took its place, and a power cut would lose the records."""
    seen: list[set[str]] = []
    flush = os.fsync

    def noted(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            seen.append(set(_names(tmp_path)))
        flush(descriptor)

    monkeypatch.setattr(os, "fsync", noted)
    file = opened()
    file.append(plain_record("1"))
    opened.clock.now = 60.0
    file.settle()
    assert seen == [{"r.closing.jsonl", "r.parquet"}]
    assert "r.closing.jsonl" not in _names(tmp_path)
    file.close()
    (tmp_path / "r.closing.jsonl").write_bytes(b"exchanged already")
    opened()
    assert "r.closing.jsonl" in seen[1]
    assert "r.closing.jsonl" not in _names(tmp_path)
