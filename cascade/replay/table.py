"""Read and write score tables. docs/collect.md has the format."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from cascade.errors import ConfigError
from cascade.replay.columns import (
    Column,
    FloatArray,
    IntArray,
    as_grades,
    as_ids,
    as_scores,
    as_values,
    as_whole_numbers,
    is_number,
    need_arrow,
)
from cascade.replay.data_digest import data_sha256
from cascade.replay.score_table import OWN_COLUMNS, ScoreTable, holds_ranks, is_score_name, listed

__all__ = [
    "ScoreTable",
    "check_columns",
    "checked_rows",
    "data_sha256",
    "holds_ranks",
    "is_score_name",
    "opened",
    "read_table",
    "write_table",
]

_METADATA_KEY: Final = b"cascade"
_READ_BYTES: Final = 1 << 20
_COUNTED: Final = frozenset({"q_identifiers", "q_tokens", "tokens"})
"""Attributes that must be numbers, as those of milliseconds must: what reads them counts with them."""


def read_table(path: Path) -> ScoreTable:
    """Read a score table and check it whole. Raises ConfigError naming the file, a column, a row and its rule."""
    with opened(path) as file:
        return checked_rows(file.read())


@contextmanager
def opened(path: Path) -> Iterator[Any]:
    """Give the Parquet file of a table. A ConfigError raised meanwhile is told as one of this file."""
    need_arrow()
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with path.open("rb") as file:
            # Read ahead, Arrow keeps all of the file that went by; unbuffered, a column of a whole row group.
            yield pq.ParquetFile(file, pre_buffer=False, buffer_size=_READ_BYTES)
    except FileNotFoundError:
        raise ConfigError(f"table {path}: {_absent(path)}") from None
    except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
        raise ConfigError(f"table {path}: cannot be read as Parquet: {type(error).__name__}") from None
    except ConfigError as error:
        raise ConfigError(f"table {path}: {error}") from None


def _absent(path: Path) -> str:
    if path.with_name(f"{path.name}.journal").exists():
        return "it is not collected to its end; run the same cascade collect again to go on"
    return "there is no such file"


def checked_rows(read: Any, first_row: int = 1) -> ScoreTable:
    """Return the table of an Arrow table, whose first row is row ``first_row`` of its file. Raises ConfigError."""
    names = read.column_names
    check_columns(names, read.num_rows)
    conditions = _conditions(read.schema.metadata or {})
    read, rows, query_ids, offsets = _sorted(read, first_row)
    scorers = [name for name in names if is_score_name(name) and is_number(read[name].type)]
    if not scorers:
        raise ConfigError(f"no column holds scores; there are {listed(names)}")

    def column(name: str) -> Column:
        return Column(name, read[name], rows)

    others = [name for name in names if name not in scorers and name not in OWN_COLUMNS - {"tokens"}]
    for name in others:
        if name in _COUNTED or name.startswith("ms_"):
            _check_counted(column(name))
    table = ScoreTable(
        query_ids,
        offsets,
        tuple(read["doc_id"].to_pylist()),
        {name: _scores(column(name)) for name in scorers},
        as_whole_numbers(column("rank_first"), least=1) if "rank_first" in names else None,
        as_whole_numbers(column("rel"), least=-1, missing=-1) if "rel" in names else None,
        attributes={name: as_values(read[name]) for name in others},
        conditions=conditions,
    )
    _check_ranks(table)
    return _with_grades(table, column("q_grades")) if "q_grades" in names else table


def _check_counted(column: Column) -> None:
    if not is_number(column.values.type):
        raise ConfigError(f"column {column.name}: numbers are wanted, not {column.values.type}")
    column.refuse(as_scores(column) < 0, "a number of at least 0 is wanted")


def check_columns(names: Sequence[str], rows: int) -> None:
    """Raise ConfigError where a column is there twice, one that every table has is not, or there is no row."""
    if repeated := {name for name in names if names.count(name) > 1}:
        raise ConfigError(f"columns that are there twice: {listed(repeated)}")
    if absent := {"query_id", "doc_id"} - set(names):
        raise ConfigError(f"no column {listed(absent)}; there are {listed(names)}")
    if not rows:
        raise ConfigError("no rows")


def _conditions(metadata: Mapping[bytes, bytes]) -> dict[str, Any]:
    try:
        conditions = json.loads(metadata.get(_METADATA_KEY, b"{}"))
    except (ValueError, RecursionError):
        conditions = None
    if not isinstance(conditions, dict):
        raise ConfigError("metadata cascade: not a JSON object")
    return conditions


def _sorted(read: Any, first_row: int) -> tuple[Any, IntArray, tuple[str, ...], IntArray]:
    """Sort rows by query, then rank_first where it is there, then document. Raises ConfigError for a pair twice.

    Returned are the rows, the number of each in its file, the queries, and in which row each begins.
    """
    import pyarrow.compute as pc

    rows = np.arange(first_row, first_row + read.num_rows)
    for name in ("query_id", "doc_id"):
        place = read.column_names.index(name)
        read = read.set_column(place, name, as_ids(Column(name, read[name], rows)))
    order = pc.sort_indices(read, sort_keys=[("query_id", "ascending"), ("doc_id", "ascending")])
    queries, documents = (np.array(read[name].take(order).to_pylist(), dtype=object) for name in ("query_id", "doc_id"))
    new = np.concatenate([[True], queries[1:] != queries[:-1]])
    twice = ~new[1:] & (documents[1:] == documents[:-1])
    if twice.any():
        at = int(np.argmax(twice))
        one, other = sorted(rows[order.to_numpy()[at : at + 2]].tolist())
        raise ConfigError(
            f"columns query_id, doc_id: rows {one} and {other}: query {queries[at]} has document {documents[at]} twice"
        )
    if "rank_first" in read.column_names:
        keys = [(name, "ascending") for name in ("query_id", "rank_first", "doc_id")]
        order = pc.sort_indices(read, sort_keys=keys)
    starts = np.flatnonzero(new)
    offsets = np.concatenate([starts, [len(queries)]]).astype(np.int64)
    return read.take(order), rows[order.to_numpy()], tuple(queries[starts]), offsets


def _check_ranks(table: ScoreTable) -> None:
    if table.rank_first is None:
        return
    same = np.flatnonzero(np.diff(table.rank_first) == 0)  # rows are in their order
    twice = np.setdiff1d(same, table.offsets[1:-1] - 1)
    if twice.size:
        query = table.query_ids[int(np.searchsorted(table.offsets, twice[0], side="right")) - 1]
        raise ConfigError(f"column rank_first: query {query} has two candidates of rank {table.rank_first[twice[0]]}")


def _scores(column: Column) -> FloatArray:
    values = as_scores(column)
    if not holds_ranks(column.name):
        return values
    column.refuse(values < 1, "ranks begin at 1")
    return -values


def _with_grades(table: ScoreTable, column: Column) -> ScoreTable:
    """Return the table with the judged grades of each query, which every row of it repeats."""
    whole = replace(table, attributes={"q_grades": as_grades(column)})
    return replace(table, grades=whole.of_queries("q_grades"))


def write_table(path: Path, table: ScoreTable) -> None:
    """Write a table to a file of its own and put it in place of ``path`` in one step. Raises ConfigError."""
    need_arrow()
    import pyarrow as pa
    import pyarrow.parquet as pq

    counts = np.diff(table.offsets)
    columns: dict[str, Any] = {
        "query_id": pa.array(np.repeat(np.array(table.query_ids, dtype=object), counts), pa.string()),
        "doc_id": pa.array(table.doc_ids, pa.string()),
    }
    if table.rank_first is not None:
        columns["rank_first"] = pa.array(table.rank_first, pa.int32())
    for name, values in table.scores.items():
        columns[name] = pa.array(-values if holds_ranks(name) else values, pa.float64(), from_pandas=True)
    if table.rel is not None:
        columns["rel"] = pa.array(table.rel, pa.int32())
    if table.grades is not None:
        repeated = [grades for grades, count in zip(table.grades, counts, strict=True) for _ in range(count)]
        columns["q_grades"] = pa.array(repeated, pa.list_(pa.int32()))
    columns |= {name: pa.array(values) for name, values in table.attributes.items()}
    metadata = {_METADATA_KEY: json.dumps(table.conditions, sort_keys=True, allow_nan=False).encode()}
    beside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        pq.write_table(pa.table(columns).replace_schema_metadata(metadata), beside, compression="zstd")
        beside.replace(path)
    except OSError as error:
        raise ConfigError(f"table {path}: cannot be written: {type(error).__name__}") from None
    finally:
        beside.unlink(missing_ok=True)
