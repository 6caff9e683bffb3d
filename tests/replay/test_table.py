"""Score tables: what is read, what is refused, and what a table tells."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cascade.errors import ConfigError
from cascade.replay.table import ScoreTable, data_sha256, read_table, write_table
from evals.first_stage import shared_data

_ROWS: dict[str, Any] = {
    "query_id": ["q2", "q1", "q2", "q1"],
    "doc_id": ["a", "b", "c", "a"],
    "bm25": [1.0, 2.0, 3.0, 4.0],
    "small": [0.1, None, 0.3, 0.4],
    "source": ["two", "one", "two", "one"],
}


def _file(folder: Path, metadata: Any = None, **columns: Any) -> Path:
    """Write a Parquet file of these columns; None leaves one out."""
    path = folder / "table.parquet"
    there = {name: values for name, values in {**_ROWS, **columns}.items() if values is not None}
    pq.write_table(pa.table(there).replace_schema_metadata(metadata), path)
    return path


def _told(path: Path) -> str:
    """Return what is said of a table that cannot be used, after its name."""
    with pytest.raises(ConfigError) as raised:
        read_table(path)
    before, _, after = str(raised.value).partition(f"table {path}: ")
    assert before == ""
    return after


def test_rows_are_sorted_by_query_and_document(tmp_path: Path) -> None:
    """The layout of the file does not matter, a null score is NaN, and strings are attributes."""
    table = read_table(_file(tmp_path))
    assert table.query_ids == ("q1", "q2")
    assert table.offsets.tolist() == [0, 2, 4]
    assert table.doc_ids == ("a", "b", "a", "c")
    assert table.column("bm25").tolist() == [4.0, 2.0, 1.0, 3.0]
    assert np.array_equal(table.column("small"), [0.4, np.nan, 0.1, 0.3], equal_nan=True)
    assert table.attributes == {"source": ("one", "one", "two", "two")}
    assert (table.rank_first, table.rel, table.grades, table.conditions) == (None, None, None, {})


def test_rank_first_orders_the_rows_of_a_query(tmp_path: Path) -> None:
    """Where the first stage's ranks are known, rows stand in their order."""
    table = read_table(_file(tmp_path, rank_first=[2, 1, 1, 2]))
    assert table.doc_ids == ("b", "a", "c", "a")
    assert table.rank_first is not None
    assert table.rank_first.tolist() == [1, 2, 1, 2]
    assert [order.tolist() for order in table.first_stage_order([])] == [[0, 1], [0, 1]]
    assert table.first_stage_name(["bm25"]) == "rank_first"


def test_without_ranks_the_first_stage_is_fused_from_its_channels(tmp_path: Path) -> None:
    """The order is that of reciprocal rank fusion, and the report can say so."""
    table = read_table(_file(tmp_path))
    assert [order.tolist() for order in table.first_stage_order(["bm25"])] == [[0, 1], [1, 0]]
    assert table.first_stage_name(["bm25", "small"]) == "rrf60(bm25,small)"
    with pytest.raises(ConfigError, match="no column rank_first; name the channels"):
        table.first_stage_order([])
    with pytest.raises(ConfigError, match=r"no column dense; scorers of this table are bm25, small$"):
        table.first_stage_order(["dense"])


@pytest.mark.parametrize("name", ["llm_rank", "llm_rank_3"])
def test_a_column_of_ranks_is_negated(tmp_path: Path, name: str) -> None:
    """Higher is better in every column, and the file gets its ranks back."""
    table = read_table(_file(tmp_path, **{name: [1, 2, None, 1]}))
    assert np.array_equal(table.column(name), [-1, -2, -1, np.nan], equal_nan=True)
    write_table(tmp_path / "again.parquet", table)
    assert pq.read_table(tmp_path / "again.parquet")[name].to_pylist() == [1.0, 2.0, 1.0, None]


def test_judgements_are_read_as_numbers(tmp_path: Path) -> None:
    """A missing grade is unjudged, and the ideal list of a query comes best first, once a query."""
    table = read_table(_file(tmp_path, rel=[1.0, None, 0.0, -1.0], q_grades=[[1, 2], [], [1, 2], []]))
    assert table.rel is not None
    assert table.rel.tolist() == [-1, -1, 1, 0]
    assert table.grades == ((), (2, 1))


def test_ids_may_be_numbers_or_categories(tmp_path: Path) -> None:
    """Numbers become text, and dictionary columns are read like plain ones."""
    path = _file(tmp_path, query_id=[2, 10, 2, 10], doc_id=pa.array(["a", "b", "c", "a"]).dictionary_encode())
    table = read_table(path)
    assert (table.query_ids, table.doc_ids) == (("10", "2"), ("a", "b", "a", "c"))


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"query_id": None}, "no column query_id; there are bm25, doc_id, small, source"),
        ({"query_id": ["q", "q", "q", None]}, "column query_id: row 4: there is no id"),
        ({"doc_id": [1.5, 2.5, 3.5, 4.5]}, "column doc_id: ids are text, not double"),
        ({"doc_id": ["a", "a", "a", "b"]}, "columns query_id, doc_id: rows 1 and 3: query q2 has document a twice"),
        ({"bm25": None, "small": None}, "no column holds scores; there are doc_id, query_id, source"),
        ({"bm25": ["x"] * 4, "small": None}, "no column holds scores; there are bm25, doc_id, query_id, source"),
        (
            {"bm25": [1.0, float("inf"), -float("inf"), 2.0]},
            "column bm25: row 2, and 1 more rows: the value is infinite",
        ),
        ({"x_rank": [0, 1, 1, 2]}, "column x_rank: row 1: ranks begin at 1"),
        ({"rank_first": [1, 2, None, 1]}, "column rank_first: row 3: there is no number"),
        ({"rank_first": [1, 1, 1, 2]}, "column rank_first: query q2 has two candidates of rank 1"),
        ({"rank_first": [0, 1, 1, 2]}, "column rank_first: row 1: whole numbers of at least 1 are wanted"),
        ({"rank_first": ["1", "2", "1", "2"]}, "column rank_first: whole numbers are wanted, not string"),
        ({"rel": [0, 0, 0.5, 0]}, "column rel: row 3: whole numbers of at least -1 are wanted"),
        ({"rel": [0, -2, 0, 0]}, "column rel: row 2: whole numbers of at least -1 are wanted"),
        ({"q_grades": [1, 2, 3, 4]}, "column q_grades: lists of whole numbers are wanted, not int64"),
        ({"q_grades": [["x"]] * 4}, "column q_grades: lists of whole numbers are wanted, not list<element: string>"),
        ({"q_grades": [[1], [0], [1], [0]]}, "column q_grades: row 2, and 1 more rows: a grade is not above 0"),
        ({"q_grades": [[1], [1], [2], [1]]}, "column q_grades: query q2 has several values"),
        ({"tokens": ["x"] * 4}, "column tokens: numbers are wanted, not string"),
        ({name: [] for name in _ROWS}, "no rows"),
    ],
)
def test_a_table_that_cannot_be_used_is_refused(tmp_path: Path, columns: dict[str, Any], message: str) -> None:
    """The file, the column and the rule are told, and nothing that a cell holds but ids."""
    assert _told(_file(tmp_path, **columns)) == message


def test_a_column_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    """Which of two columns is meant cannot be told."""
    path = tmp_path / "table.parquet"
    columns = [pa.array(["q"]), pa.array(["d"]), pa.array([1.0]), pa.array([2.0])]
    pq.write_table(pa.Table.from_arrays(columns, ["query_id", "doc_id", "bm25", "bm25"]), path)
    assert _told(path) == "columns that are there twice: bm25"


@pytest.mark.parametrize("cascade", ["[]", "{", "\xff", "[" * 100_000])
def test_conditions_must_be_a_json_object(tmp_path: Path, cascade: str) -> None:
    """What is stored under the metadata key is checked like all else."""
    assert _told(_file(tmp_path, metadata={"cascade": cascade})) == "metadata cascade: not a JSON object"


@pytest.mark.parametrize("content", [b"", b"PAR1", b"query_id,doc_id\nq,d\n", b"PAR1" + b"\x00" * 64 + b"PAR1"])
def test_a_file_that_is_not_parquet_is_refused(tmp_path: Path, content: bytes) -> None:
    """A torn, empty or other file gives one sentence."""
    path = tmp_path / "table.parquet"
    path.write_bytes(content)
    assert _told(path).startswith("cannot be read as Parquet: ")


def test_a_torn_file_is_refused(tmp_path: Path) -> None:
    """A file that ends early is no table."""
    path = _file(tmp_path)
    path.write_bytes(path.read_bytes()[:-20])
    assert _told(path).startswith("cannot be read as Parquet: ")


def test_a_file_that_is_not_there_or_a_folder_is_refused(tmp_path: Path) -> None:
    """Each has its own sentence."""
    assert _told(tmp_path / "no.parquet") == "there is no such file"
    assert _told(tmp_path).startswith("cannot be read as Parquet: ")


def test_a_collection_that_is_not_done_is_told(tmp_path: Path) -> None:
    """Its journal is there and its table is not: what to do is said."""
    (tmp_path / "t.parquet.journal").touch()
    told = r"t\.parquet: it is not collected to its end; run the same cascade collect again to go on$"
    with pytest.raises(ConfigError, match=told):
        read_table(tmp_path / "t.parquet")


def test_missing_library_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What to install is said where the extra is not there."""
    monkeypatch.setitem(__import__("sys").modules, "pyarrow.parquet", None)
    with pytest.raises(ConfigError, match=r"^score tables need cascade-rerank\[fit\]; in a clone: "):
        read_table(tmp_path / "table.parquet")


def test_a_missing_scorer_is_told_by_name(tmp_path: Path) -> None:
    """The scorers that there are are listed, and a column of text is told apart from none."""
    table = read_table(_file(tmp_path))
    with pytest.raises(ConfigError, match=r"^no column large; scorers of this table are bm25, small$"):
        table.column("large")
    with pytest.raises(ConfigError, match=r"^column source holds no scores; scorers of this table are bm25, small$"):
        table.column("source")


def test_where_keeps_the_queries_of_a_value(tmp_path: Path) -> None:
    """Rows, ranks, judgements and attributes of the others go; a number is found by how it reads."""
    columns = {"rank_first": [2, 1, 1, 2], "rel": [0, 1, 2, 3], "q_grades": [[2], [3, 1], [2], [3, 1]]}
    table = read_table(_file(tmp_path, {"cascade": json.dumps({"x": 1})}, **columns, q_tokens=[7, 9, 7, 9]))
    for part in (table.where("source", "two"), table.where("q_tokens", "7")):
        assert (part.query_ids, part.doc_ids, part.offsets.tolist()) == (("q2",), ("c", "a"), [0, 2])
        assert part.rank_first is not None
        assert part.rel is not None
        assert (part.rank_first.tolist(), part.rel.tolist(), part.grades) == ([1, 2], [2, 0], ((2,),))
        assert part.column("bm25").tolist() == [3.0, 1.0]
        assert part.attributes == {"source": ("two", "two"), "q_tokens": (7, 7)}
        assert part.conditions == {"x": 1}


def test_where_that_finds_nothing_is_refused(tmp_path: Path) -> None:
    """Known values are told for columns that are closed lists, never for one that may hold text."""
    table = read_table(_file(tmp_path, note=["secret"] * 4, mixed=["a", "b", "c", "b"]))
    for name, message in (
        ("source", "column source: no query has the value asked for; there are one, two"),
        ("note", "column note: no query has the value asked for"),
        ("mixed", "column mixed: query q2 has several values"),
        ("other", "no column other; beside scores this table has mixed, note, source"),
    ):
        with pytest.raises(ConfigError) as raised:
            table.where(name, "x")
        assert str(raised.value) == message


def test_take_keeps_the_tables_order(tmp_path: Path) -> None:
    """Queries come once, sorted, whatever the order asked for; none at all is an empty table."""
    table = read_table(_file(tmp_path))
    assert table.take([1, 0, 1]).query_ids == ("q1", "q2")
    nothing = table.take([])
    assert (nothing.query_ids, nothing.doc_ids, nothing.offsets.tolist()) == ((), (), [0])


def test_a_table_comes_back_as_it_was_written(tmp_path: Path) -> None:
    """Writing and reading change nothing, down to the last bit and the conditions; no other file stays."""
    columns = {"rank_first": [2, 1, 1, 2], "rel": [-1, 1, 2, 3], "q_grades": [[200], [], [200], []]}
    more = {"q_class": ["other", "identifier"] * 2, "tokens": [1, 2, 3, 4], "ms_small": [0.1, 0.2, 0.1, 0.2]}
    table = read_table(_file(tmp_path, {"cascade": '{"a": [1]}'}, **columns, **more))
    folder = tmp_path / "out"
    folder.mkdir()
    write_table(folder / "t.parquet", table)
    again = read_table(folder / "t.parquet")
    assert [path.name for path in folder.iterdir()] == ["t.parquet"]
    assert again.attributes == table.attributes
    assert (again.query_ids, again.doc_ids, again.grades) == (table.query_ids, table.doc_ids, table.grades)
    assert again.conditions == {"a": [1]}
    names = ["bm25", "small", "rank_first", "rel", "q_grades"]
    assert data_sha256(again, names) == data_sha256(table, names)


def test_a_table_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    """A folder that is not there is one sentence."""
    table = read_table(_file(tmp_path))
    with pytest.raises(ConfigError, match=r"cannot be written: FileNotFoundError$"):
        write_table(tmp_path / "no" / "t.parquet", table)


def test_the_digest_is_of_ids_and_values(tmp_path: Path) -> None:
    """Layout, width of floats and the sign of zero do not count; a value, an id or a column does."""
    base = read_table(_file(tmp_path, bm25=[0.0, 2.0, 3.0, 4.0]))
    digest = data_sha256(base, ["bm25", "small"])
    assert digest.startswith("sha256:")
    assert digest == data_sha256(base, ["small", "bm25", "bm25"])
    order = [3, 1, 0, 2]
    shuffled = {name: [values[row] for row in order] for name, values in {**_ROWS, "bm25": [-0.0, 2, 3, 4]}.items()}
    shuffled["bm25"] = pa.array(shuffled["bm25"], pa.float32())
    assert data_sha256(read_table(_file(tmp_path, **shuffled)), ["bm25", "small"]) == digest
    assert data_sha256(read_table(_file(tmp_path, bm25=[0.0, 2.0, 3.0, 5.0])), ["bm25", "small"]) != digest
    assert data_sha256(read_table(_file(tmp_path, bm25=[0.0, 2.0, 3.0, 4.0], doc_id=list("abcz"))), ["bm25"]) != digest
    assert data_sha256(base, ["bm25"]) != digest
    for name in ("rel", "q_grades", "source"):
        with pytest.raises(ConfigError, match=name):
            data_sha256(base, [name])


_values = st.one_of(st.none(), st.floats(allow_nan=False, allow_infinity=False))


@given(st.dictionaries(st.tuples(st.text("qr", max_size=2), st.text("ab", max_size=3)), _values, min_size=1), st.data())
def test_reading_does_not_depend_on_the_order_of_rows(
    tmp_path_factory: pytest.TempPathFactory, pairs: dict[tuple[str, str], float | None], data: st.DataObject
) -> None:
    """Any permutation of the rows is the same table."""
    folder = tmp_path_factory.mktemp("tables")
    tables: list[ScoreTable] = []
    for rows in (list(pairs), data.draw(st.permutations(list(pairs)))):
        columns = {"query_id": [q for q, _ in rows], "doc_id": [d for _, d in rows], "x": [pairs[row] for row in rows]}
        path = folder / "t.parquet"
        pq.write_table(pa.table({**columns, "x": pa.array(columns["x"], pa.float64())}), path)
        tables.append(read_table(path))
    one, other = tables
    assert (one.query_ids, one.doc_ids) == (other.query_ids, other.doc_ids)
    assert np.array_equal(one.column("x"), other.column("x"), equal_nan=True)
    assert data_sha256(one, ["x"]) == data_sha256(other, ["x"])
    assert list(zip(one.query_ids, np.diff(one.offsets), strict=True)) == [
        (query, sum(q == query for q, _ in pairs)) for query in sorted({q for q, _ in pairs})
    ]


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "queries", "missing"),
    [("jqara", 1667, {}), ("trec-dl-19", 43, {"splade_pp_ed": 2758}), ("trec-dl-20", 54, {"repllama7b": 2263})],
)
def test_the_real_tables_can_be_read(name: str, queries: int, missing: dict[str, int]) -> None:
    """Their hundred candidates a query, ranks, nulls and unjudged pairs come as the interface says."""
    path = shared_data() / f"{name}.parquet"
    if not path.is_file():
        pytest.skip(f"{name} is not here (set CASCADE_DATA to the folder of real collections)")
    table = read_table(path)
    assert np.diff(table.offsets).tolist() == [100] * queries
    assert {column: int(np.isnan(table.column(column)).sum()) for column in missing} == missing
    assert table.rank_first is None
    if "bm25_rank" in table.scores:
        by_rank = table.first_stage_order(["bm25_rank"])
        assert all((order == other).all() for order, other in zip(by_rank, _ranked(table), strict=True))
    else:
        assert len(table.where("source", "QA20QBIK").query_ids) == 740


def _ranked(table: ScoreTable) -> list[Any]:
    ranks = -table.column("bm25_rank")
    return [np.argsort(ranks[table.rows(query)]) for query in range(len(table.query_ids))]
