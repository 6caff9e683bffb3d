"""Records as rows of columns, and back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cascade.telemetry.record_parquet import joined, record_schema, record_table, writer_of
from cascade.telemetry.record_rows import line_of, row_of
from tests.telemetry.recorded_lines import every_record

_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


def _lines() -> list[bytes]:
    return [line for record in every_record() for line in (record.head, record.line)]


def _through_parquet(path: Path, lines: list[bytes]) -> list[bytes]:
    schema = record_schema()
    with path.open("wb") as file:
        writer = writer_of(file, schema)
        writer.write_table(joined([record_table(lines[:3], schema), record_table(lines[3:], schema)]))
        writer.close()
    return [line_of(row) for row in pq.ParquetFile(path).read().to_pylist()]


def test_lines_through_parquet_are_equal_lines(tmp_path: Path) -> None:
    """Every record of every arm and mode, heads among them, says the same in the same order."""
    lines = _lines()
    back = _through_parquet(tmp_path / "r", lines)
    assert [orjson.loads(line) for line in back] == [orjson.loads(line) for line in lines]
    assert len({bytes(line) for line in lines}) == 9


def test_every_decision_of_ours_has_its_columns() -> None:
    """Nothing that the recorder writes has to be kept whole: a field that is new to a decision needs a column."""
    kept = [row_of(record.line) for record in every_record()]
    assert [row.get("line") for row in kept] == [None] * len(kept)


def test_the_trace_of_a_decision_has_a_column_and_no_place_in_the_line_of_one_without(tmp_path: Path) -> None:
    """Lines from before there were traces come back as they were."""
    line = next(record.line for record in every_record())
    begin, decision_id, rest = line.rstrip().partition(b'"decision_id":"id-1",')
    assert decision_id
    traced = begin + decision_id + b'"trace_id":"0af7651916cd43dd8448eb211c80319c",' + rest
    assert row_of(traced)["trace_id"] == "0af7651916cd43dd8448eb211c80319c"
    back = [orjson.loads(each) for each in _through_parquet(tmp_path / "r", [line, traced])]
    assert back == [orjson.loads(line), orjson.loads(traced)]
    assert [each.get("trace_id", "none") for each in back] == ["none", "0af7651916cd43dd8448eb211c80319c"]


def test_a_line_from_before_outcomes_were_told_comes_back_without_one(tmp_path: Path) -> None:
    """As a row of columns."""
    told = orjson.loads(every_record()[0].line)
    del told["outcome"]
    line = orjson.dumps(told)
    assert "line" not in row_of(line)
    assert orjson.loads(line_of(row_of(line))) == told


def test_columns_are_for_those_who_read_no_lines(tmp_path: Path) -> None:
    """Times are times, scores lists, signals a map; a head tells its release."""
    lines = _lines()
    schema = record_schema()
    table = record_table(lines[:2], schema)
    head, decision = table.to_pylist()
    assert (head["kind"], head["release"], head["decision_id"]) == ("head", "r1", None)
    assert decision["time"].isoformat() == "2026-11-29T12:00:00.123000+00:00"
    assert (decision["small"], decision["escalated"]) == ([1.25, -0.5, None], [2, 1])
    assert decision["signals"] == [("bm25.gap", 0.5), ("x", None)]
    assert decision["rounds"][0]["compute_ms"] == 1.235
    assert schema.metadata == {b"cascade": b"cascade-records-parquet/1"}


@pytest.mark.parametrize(
    "change",
    [
        {"new_field": 1},
        {"depth": "3"},
        {"depth": 2**70},
        {"small": ["a"]},
        {"signals": None},
        {"signals": {"x": "y"}},
        {"rounds": [{"stage": "small", "unheard": 1}]},
        {"rounds": 5},
        {"rounds": True},
        {"estimates": [1]},
        {"time": "0001-01-01T00:00:00+23:59"},
        {"time": "2026-11-29T12:00:00.123456+00:00"},
        {"time": "yesterday"},
        {"would": {"depth": 1}},
        {"ids": [["a"]]},
    ],
)
def test_what_has_no_column_is_kept_whole(change: dict[str, Any], tmp_path: Path) -> None:
    """A field of a later version, a value of another kind: the line comes back as it was, and so do those beside it."""
    lines = _lines()
    odd = (
        orjson.dumps(orjson.loads(lines[1]) | change)
        if change.get("depth") != 2**70
        else lines[1].replace(b'"depth":3', b'"depth":1180591620717411303424')
    )
    lines[1] = odd
    back = _through_parquet(tmp_path / "r", lines)
    assert back[1] == odd.rstrip(b"\n")
    assert [orjson.loads(line) for line in back[2:]] == [orjson.loads(line) for line in lines[2:]]


@given(_JSON)
def test_any_json_comes_back(value: Any) -> None:
    """Whatever a line holds; also where it calls itself a decision."""
    for told in (value, {"kind": "decision", "head": value}, {"kind": "head", "id": value, "release": "r"}):
        line = orjson.dumps(told)
        table = record_table([line], record_schema())
        assert orjson.loads(line_of(table.to_pylist()[0])) == told


def test_a_torn_line_stays_torn() -> None:
    """What reads it counts it as such, as it would have in the file of lines."""
    (row,) = record_table([b'{"kind":"decis\n'], record_schema()).to_pylist()
    assert line_of(row) == b'{"kind":"decis'
