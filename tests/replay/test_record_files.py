"""Files of records, lines and Parquet, read alike."""

from __future__ import annotations

import sys
import tracemalloc
from collections.abc import Sequence
from pathlib import Path

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cascade.capacity.record_traffic import Digests, traffic_of_records
from cascade.errors import ConfigError
from cascade.replay.from_records import gather
from cascade.replay.logged.report import Asked, off_policy_report
from cascade.replay.record_files import MOST_LINE_BYTES, lines_of
from cascade.replay.record_lines import Lines, Unread
from cascade.telemetry.record_parquet import record_schema, record_table, writer_of
from cascade.telemetry.record_rows import PARQUET_FORMAT
from tests.replay.bandit import BY_CLASS, SPLIT, written_split
from tests.replay.records import decision_line, head_line, write_records


def _parquet(path: Path, lines: Sequence[bytes]) -> Path:
    schema = record_schema()
    with path.open("wb") as file:
        writer = writer_of(file, schema)
        for begins in range(0, len(lines), 100):
            writer.write_table(record_table(lines[begins : begins + 100], schema))
        writer.close()
    return path


def _lines(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines(keepends=True)


def test_every_reader_takes_lines_parquet_and_mixtures(tmp_path: Path) -> None:
    """Table, off-policy report and workload are the same, from whichever file a record comes."""
    written, outcomes = written_split(tmp_path)
    lines = _lines(written)
    heads, decisions = lines[:2], lines[2:]
    parquet = _parquet(tmp_path / "r.parquet", lines)
    halves = [
        _parquet(tmp_path / "a.parquet", [*heads, *decisions[:250]]),
        tmp_path / "b.jsonl",
    ]
    halves[1].write_bytes(b"".join([*heads, *decisions[250:]]))
    digests = Digests("sha256:p", "sha256:o", "normal")
    tables, workloads, reports = [], [], []
    for paths in ([written], [parquet], halves):
        tables.append(gather(paths, complete=False))
        workloads.append(traffic_of_records(paths, window_s=60.0, burst_factor=1.0, digests=digests))
        asked = Asked(paths, BY_CLASS.decider, {}, [each.arm for each in SPLIT], outcomes, resamples=400)
        reports.append(off_policy_report(asked))
    assert {orjson.dumps(report) for report in reports} == {orjson.dumps(reports[0])}
    assert workloads[1:] == [workloads[0]] * 2
    for table in tables[1:]:
        assert table.counts == tables[0].counts
        assert table.table.query_ids == tables[0].table.query_ids
        assert table.table.doc_ids == tables[0].table.doc_ids
        for name, scores in tables[0].table.scores.items():
            assert table.table.scores[name].tobytes() == scores.tobytes()


def test_lines_that_say_nothing_count_alike_in_either(tmp_path: Path) -> None:
    """Torn, strange and headless ones stay what they are."""
    headless, strange = decision_line(head="f" * 16), decision_line(depth=99)
    path = write_records(tmp_path / "r", [head_line(), decision_line(), headless, strange, {"kind": "else"}])
    path.write_bytes(path.read_bytes() + b'{"kind": "dec')
    for read in (path, _parquet(tmp_path / "p", _lines(path))):
        lines = Lines([read])
        assert len(list(lines)) == 1
        assert lines.unread == Unread(torn=1, strange=2, headless=1)


@pytest.mark.parametrize(
    ("metadata", "told"),
    [
        ({}, "no Parquet file of records; cascade-records-parquet/1 is read"),
        ({"cascade": "{}"}, "no Parquet file of records; "),
        ({"cascade": "cascade-records-parquet/9"}, "written by another version; cascade-records-parquet/1 is read"),
    ],
)
def test_other_parquet_files_are_refused(tmp_path: Path, metadata: dict[str, str], told: str) -> None:
    """A score table is none of records, and a later version may mean something else."""
    pq.write_table(pa.table({"a": [1]}).replace_schema_metadata(metadata), tmp_path / "p")
    with pytest.raises(ConfigError, match=rf"^records .*p: {told}"):
        list(lines_of(tmp_path / "p"))


def test_columns_of_other_types_are_an_error_of_the_file(tmp_path: Path) -> None:
    """A file that another program wrote may say that it is one of records."""
    metadata = {"cascade": "cascade-records-parquet/1"}
    for column in ({"time": ["noon"]}, {"signals": [7]}, {"rounds": ["none"]}):
        table = pa.table({"kind": ["decision"], **column}).replace_schema_metadata(metadata)
        pq.write_table(table, tmp_path / "p")
        with pytest.raises(ConfigError, match=r"^records .*p: cannot be read as Parquet: "):
            list(lines_of(tmp_path / "p"))


def test_a_parquet_file_that_was_cut_off_is_told(tmp_path: Path) -> None:
    """Without its end nothing of it can be read."""
    whole = _parquet(tmp_path / "p", [orjson.dumps(head_line())]).read_bytes()
    for cut in (whole[:-20], whole[:100], b"PAR1"):
        (tmp_path / "p").write_bytes(cut)
        with pytest.raises(ConfigError, match=r"^records .*p: cannot be read as Parquet: "):
            list(lines_of(tmp_path / "p"))


def test_parquet_without_its_library_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And lines are read all the same."""
    lines = [orjson.dumps(head_line()) + b"\n"]
    parquet = _parquet(tmp_path / "p", lines)
    monkeypatch.setitem(sys.modules, "pyarrow", None)  # what makes an import fail
    with pytest.raises(ConfigError, match=r"^records .*p: Parquet needs cascade-rerank\[fit\]; in a clone: "):
        list(lines_of(parquet))
    (tmp_path / "r").write_bytes(lines[0])
    assert list(lines_of(tmp_path / "r")) == lines


def test_files_are_gone_through_and_not_held(tmp_path: Path) -> None:
    """Of 8 MB of lines, and of the same in Parquet, less than one is in memory at any time."""
    line = orjson.dumps(decision_line(ids=[f"{place:016x}" for place in range(200)])) + b"\n"
    path = tmp_path / "r"
    path.write_bytes(line * (8_000_000 // len(line)))
    count = len(_lines(path))
    for read in (path, _parquet(tmp_path / "p", _lines(path))):
        tracemalloc.start()
        before = pa.total_allocated_bytes()
        most = read_lines = 0
        for _ in lines_of(read):
            read_lines += 1
            most = max(most, pa.total_allocated_bytes() - before)
        held = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert read_lines == count
        assert held + most < 4_000_000


def test_a_line_without_an_end_is_not_held(tmp_path: Path) -> None:
    """One that is longer than any record is passed over in pieces, and those around it are read."""
    path = tmp_path / "r"
    with path.open("wb") as file:
        file.write(b"{}\n")
        file.truncate(3 + 2 * MOST_LINE_BYTES + 5)
        file.seek(0, 2)
        file.write(b"\n[]\n")
    assert list(lines_of(path)) == [b"{}\n", b"", b"[]\n"]


def test_text_in_parquet_that_is_no_utf_8_is_an_error_of_the_file(tmp_path: Path) -> None:
    """Something else wrote it, or it is damaged: Arrow finds out as the text is asked for, and by another error."""
    path = tmp_path / "records.parquet"
    offsets, data = pa.py_buffer(b"\0\0\0\0\3\0\0\0"), pa.py_buffer(b"\xff\xfe\xfd")
    lines = pa.StringArray.from_buffers(1, offsets, data)
    pq.write_table(pa.table({"line": lines}).replace_schema_metadata({"cascade": PARQUET_FORMAT}), path)
    with pytest.raises(ConfigError, match=f"^records {path}: cannot be read as Parquet: UnicodeDecodeError$"):
        list(lines_of(path))
