"""A table's file read some whole queries at a time."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cascade.cli.eval_policy import policy_of_calibration
from cascade.errors import ConfigError
from cascade.replay.evaluate import Question, evaluate
from cascade.replay.report import report
from cascade.replay.source import Source, source_on_disk
from cascade.replay.stream import Unsorted, streamed
from cascade.replay.table import ScoreTable, read_table, write_table
from tests.replay.made import ROLES, made_table
from tests.replay.made_calibration import made_calibration

_QUESTION = Question(ROLES, k=5, resamples=1000)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Write a made table of 40 queries, with first-stage ranks and row groups that cut queries in two."""
    table = made_table()
    ranks = np.concatenate([np.random.default_rng(0).permutation(20) + 1 for _ in range(40)])
    write_table(tmp_path / "whole.parquet", replace(table, rank_first=ranks, conditions={"made": True}))
    pq.write_table(pq.read_table(tmp_path / "whole.parquet"), tmp_path / "made.parquet", row_group_size=33)
    return tmp_path / "made.parquet"


def _written(told: Any) -> bytes:
    return orjson.dumps(told)


def _changed(path: Path, **columns: Any) -> Path:
    """Write the table again with other columns; None leaves one out."""
    table = pq.read_table(path)
    for name, values in columns.items():
        if name in table.column_names:
            table = table.drop_columns([name])
        table = table if values is None else table.append_column(name, pa.array(values))
    pq.write_table(table, path, row_group_size=33)
    return path


@pytest.mark.parametrize("queries", [1, 7, 39, 40, 1000])
def test_parts_of_a_file_are_those_of_the_whole(path: Path, queries: int) -> None:
    """Every part but the last has so many queries, and together they are the table, to the last field."""
    whole, at = read_table(path), 0
    for part in streamed(path, queries):
        wanted = whole.take(range(at, min(at + queries, 40)))
        assert (part.query_ids, part.doc_ids, part.attributes) == (wanted.query_ids, wanted.doc_ids, wanted.attributes)
        assert part.offsets.tolist() == wanted.offsets.tolist()
        assert part.conditions == {"made": True}
        for name, scores in wanted.scores.items():
            assert np.array_equal(part.scores[name], scores, equal_nan=True)
        assert part.rank_first is not None
        assert wanted.rank_first is not None
        assert part.rank_first.tolist() == wanted.rank_first.tolist()
        at += len(part.query_ids)
    assert at == 40


def test_a_streamed_report_is_that_of_the_whole_table(tmp_path: Path) -> None:
    """With a calibration and a policy, in partitions of any size: the same bytes."""
    path = tmp_path / "t.parquet"
    write_table(path, made_table(12, 12))
    calibration = made_calibration(second=True)
    policy = policy_of_calibration(calibration, 5)

    def told(table: ScoreTable | Source, queries: int) -> bytes:
        return _written(report(evaluate({"t": table}, _QUESTION, calibration, policy, partition_queries=queries)))

    whole = told(read_table(path), 1000)
    assert told(source_on_disk(path, ROLES), 5) == whole
    assert told(read_table(path), 1) == whole


def test_a_choice_is_made_while_streaming(path: Path) -> None:
    """Only the chosen queries are replayed; the digest and the counts are of them."""
    question = replace(_QUESTION, where=(("source", "a"),))
    streaming = report(evaluate({"t": source_on_disk(path, ROLES, question.where)}, question, partition_queries=3))
    assert streaming["queries"] == 20
    assert _written(streaming) == _written(report(evaluate({"t": read_table(path)}, question)))
    assert streaming["conditions"]["tables"][0]["pairs"] == 400


def test_how_far_it_has_come_is_told(path: Path) -> None:
    """After each partition: the queries that are done, of all."""
    told: list[tuple[int, int]] = []
    source = source_on_disk(path, ROLES)
    evaluate({"t": source}, _QUESTION, partition_queries=15, advance=lambda done, total: told.append((done, total)))
    assert told == [(15, 40), (30, 40), (40, 40)]


def test_a_file_that_is_not_sorted_is_sorted_where_it_is_small(path: Path) -> None:
    """Up to the bound it is read whole, and the report is the same; above, it is refused with the row that is wrong."""
    sorted_file = _written(report(evaluate({"t": source_on_disk(path, ROLES)}, _QUESTION)))
    table = pq.read_table(path)
    pq.write_table(table.take([*range(400, 800), *range(400)]), path)
    with pytest.raises(Unsorted) as raised:
        list(streamed(path, 10))
    assert (raised.value.row, raised.value.rows) == (401, 800)
    assert _written(report(evaluate({"t": source_on_disk(path, ROLES)}, _QUESTION))) == sorted_file
    told = r"made\.parquet: column query_id: row 401 has a lesser id, as text, than the row before it, and of 800 rows "
    with pytest.raises(ConfigError, match=told + "no more than 799 are sorted here"):
        source_on_disk(path, ROLES, in_memory_rows=799)


def test_ids_that_are_numbers_are_sorted_as_text(path: Path) -> None:
    """9, 10 is not sorted: as text, 10 comes first."""
    _changed(path, query_id=[row // 20 + 1 for row in range(800)])
    assert source_on_disk(path, ROLES).query_ids[:3] == ("1", "10", "11")


def _doubled(values: list[Any], row: int, value: Any) -> list[Any]:
    return [*values[: row - 1], value, *values[row:]]


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("large", float("inf"), "column large: row 777: the value is infinite"),
        ("rel", 0.5, "column rel: row 777: whole numbers of at least -1 are wanted"),
        ("rel", -2.0, "column rel: row 777: whole numbers of at least -1 are wanted"),
        ("rank_first", None, "column rank_first: row 777: there is no number"),
        ("doc_id", None, "column doc_id: row 777: there is no id"),
        ("query_id", None, "column query_id: row 777: there is no id"),
    ],
)
def test_a_row_far_down_is_told_by_its_number_in_the_file(path: Path, column: str, value: Any, message: str) -> None:
    """Counted from 1, before anything is replayed, and as reading the whole tells it."""
    values = pq.read_table(path)[column].to_pylist()
    _changed(path, **{column: _doubled([float(v) for v in values] if column == "rel" else values, 777, value)})
    for read in (lambda: source_on_disk(path, ROLES), lambda: read_table(path)):
        with pytest.raises(ConfigError) as raised:
            read()
        assert str(raised.value) == f"table {path}: {message}"


def test_a_pair_or_a_rank_that_is_there_twice_is_told(path: Path) -> None:
    """The rows of a pair, and the query of a rank."""
    documents, ranks = (pq.read_table(path)[name].to_pylist() for name in ("doc_id", "rank_first"))
    _changed(path, rank_first=_doubled(ranks, 800, ranks[798]))
    with pytest.raises(ConfigError, match=rf"column rank_first: query q1-039 has two candidates of rank {ranks[798]}$"):
        source_on_disk(path, ROLES)
    _changed(path, doc_id=_doubled(documents, 800, documents[798]), rank_first=None)
    with pytest.raises(ConfigError, match=r"rows 799 and 800: query q1-039 has document d\d+ twice$"):
        source_on_disk(path, ROLES)


@pytest.mark.parametrize("other", [made_table(30), made_table(41), made_table(seed=2)])
def test_a_file_that_changes_between_its_two_readings_is_refused(path: Path, other: ScoreTable) -> None:
    """What was checked is not what would be replayed."""
    source = source_on_disk(path, ROLES)
    write_table(path, other)
    with pytest.raises(ConfigError, match=r"made\.parquet: it changed while it was read$"):
        list(source.partitions(10))


def test_a_file_that_goes_away_between_its_two_readings_is_told(path: Path) -> None:
    """While it is read it may be unlinked, and what is left of it is no longer what was named."""
    source = source_on_disk(path, ROLES)
    parts = source.partitions(10)
    next(parts)
    path.unlink()
    with pytest.raises(ConfigError, match=r"made\.parquet: it changed while it was read$"):
        next(parts)
    with pytest.raises(ConfigError, match=r"made\.parquet: there is no such file$"):
        next(source.partitions(10))


def test_conditions_that_no_query_fits_together_are_told(path: Path) -> None:
    """The second one is looked for among the queries that fit the first, over all parts of the file."""
    classes = ["other" if row < 20 else "identifier" for row in range(800)]
    _changed(path, q_class=classes)
    told = r"table made\.parquet: column q_class: no query has the value asked for; there are identifier$"
    with pytest.raises(ConfigError, match=told):
        source_on_disk(path, ROLES, (("source", "b"), ("q_class", "other")))
    assert source_on_disk(path, ROLES, (("source", "a"), ("q_class", "other"))).query_ids == ("q1-000",)
