"""Score tables: what every scorer said of every candidate of every query. docs/collect.md has the format."""

from __future__ import annotations

import hashlib
import json
import os
import re
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from cascade.errors import ConfigError
from cascade.replay.columns import (
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
from cascade.replay.fusion import RRF_CONSTANT, fused_order

__all__ = ["ScoreTable", "data_sha256", "holds_ranks", "is_score_name", "read_table", "write_table"]

_METADATA_KEY: Final = b"cascade"
_RANKS: Final = re.compile(r"_rank(_\d+)?$")
_OWN_COLUMNS: Final = frozenset({"query_id", "doc_id", "rank_first", "rel", "q_grades", "tokens"})
_ATTRIBUTE_PREFIXES: Final = ("ms_", "q_")
_ENUMERATED: Final = ("source", "q_class")
"""Columns whose values may be told in an error; another may hold anything, text too."""


def holds_ranks(name: str) -> bool:
    """Tell whether a column of this name holds ranks, 1 the best, in place of scores."""
    return _RANKS.search(name) is not None


def is_score_name(name: str) -> bool:
    """Tell whether a numeric column of this name is a scorer's."""
    return name not in _OWN_COLUMNS and not name.startswith(_ATTRIBUTE_PREFIXES)


@dataclass(frozen=True, slots=True, eq=False)
class ScoreTable:
    """The candidates of Q queries in R rows, sorted by query.

    Rows of query q are ``offsets[q]:offsets[q + 1]``; within a query they are in first-stage order
    where ``rank_first`` (1-based) is known, else by document id, so that no file's layout decides ties.
    ``scores`` maps a scorer to R floats, higher is better, NaN where missing. A column named
    ``x_rank`` or ``x_rank_3`` holds ranks in the file and their negatives here. ``rel`` is a judged
    grade, -1 where unjudged. ``grades`` has the positive grades of all judged documents of a query,
    best first; None means that the ideal order is over the table's own rows. ``attributes`` has
    every other column, a value a row. ``conditions`` says how the table was made.
    """

    query_ids: tuple[str, ...]
    offsets: IntArray
    doc_ids: tuple[str, ...]
    scores: Mapping[str, FloatArray]
    rank_first: IntArray | None = None
    rel: IntArray | None = None
    grades: tuple[tuple[int, ...], ...] | None = None
    attributes: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    conditions: Mapping[str, Any] = field(default_factory=dict)

    def rows(self, query: int) -> slice:
        """Return where the rows of a query stand."""
        return slice(int(self.offsets[query]), int(self.offsets[query + 1]))

    def column(self, name: str) -> FloatArray:
        """Return the scores of a scorer. Raises ConfigError naming the scorers that there are."""
        if name in self.scores:
            return self.scores[name]
        told = f"column {name} holds no scores" if name in self.attributes else f"no column {name}"
        raise ConfigError(f"{told}; scorers of this table are {', '.join(sorted(self.scores))}")

    def of_queries(self, name: str) -> tuple[Any, ...]:
        """Return an attribute as one value a query. Raises ConfigError where a query has several or none is there."""
        if name not in self.attributes:
            raise ConfigError(f"no column {name}; beside scores this table has {_listed(self.attributes)}")
        values = self.attributes[name]
        firsts = tuple(values[start] for start in self.offsets[:-1])
        for query, first in enumerate(firsts):
            if any(value != first for value in values[self.rows(query)]):
                raise ConfigError(f"column {name}: query {self.query_ids[query]} has several values")
        return firsts

    def where(self, name: str, value: object) -> ScoreTable:
        """Return the queries whose attribute reads like ``value``. Raises ConfigError where there are none."""
        values = self.of_queries(name)
        chosen = [query for query, found in enumerate(values) if str(found) == str(value)]
        if not chosen:
            known = f"; there are {_listed(map(str, set(values)))}" if name in _ENUMERATED else ""
            raise ConfigError(f"column {name}: no query has the value asked for{known}")
        return self.take(chosen)

    def take(self, queries: Sequence[int] | IntArray) -> ScoreTable:
        """Return these queries, each once, in this table's order."""
        chosen = np.unique(np.asarray(queries, dtype=np.int64))
        parts = [np.arange(self.offsets[query], self.offsets[query + 1]) for query in chosen]
        rows = np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)
        return ScoreTable(
            query_ids=tuple(self.query_ids[query] for query in chosen),
            offsets=np.concatenate([[0], np.cumsum([len(part) for part in parts])]).astype(np.int64),
            doc_ids=tuple(self.doc_ids[row] for row in rows),
            scores={name: values[rows] for name, values in self.scores.items()},
            rank_first=None if self.rank_first is None else self.rank_first[rows],
            rel=None if self.rel is None else self.rel[rows],
            grades=None if self.grades is None else tuple(self.grades[query] for query in chosen),
            attributes={name: tuple(values[row] for row in rows) for name, values in self.attributes.items()},
            conditions=self.conditions,
        )

    def first_stage_name(self, channels: Sequence[str]) -> str:
        """Return what :meth:`first_stage_order` goes by, as a report states it."""
        return "rank_first" if self.rank_first is not None else f"rrf{RRF_CONSTANT}({','.join(channels)})"

    def first_stage_order(self, channels: Sequence[str]) -> list[IntArray]:
        """Return for each query its rows, counted from its first one, in first-stage order.

        By ``rank_first`` where it is known, else by reciprocal rank fusion of the channels, ties in the
        table's order. Raises ConfigError where there is neither.
        """
        if self.rank_first is not None:
            ranks = self.rank_first
            return [np.argsort(ranks[self.rows(query)], kind="stable") for query in range(len(self.query_ids))]
        if not channels:
            raise ConfigError("this table has no column rank_first; name the channels of the first stage")
        columns = [self.column(name) for name in channels]
        return [fused_order([values[self.rows(query)] for values in columns]) for query in range(len(self.query_ids))]


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "none"


def read_table(path: Path) -> ScoreTable:
    """Read a score table and check it whole. Raises ConfigError naming the file, a column and its rule."""
    need_arrow()
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with path.open("rb") as file:
            read = pq.ParquetFile(file).read()
    except FileNotFoundError:
        raise ConfigError(f"table {path}: there is no such file") from None
    except (OSError, pa.ArrowException) as error:
        raise ConfigError(f"table {path}: cannot be read as Parquet: {type(error).__name__}") from None
    try:
        return _checked(read)
    except ConfigError as error:
        raise ConfigError(f"table {path}: {error}") from None


def _checked(read: Any) -> ScoreTable:
    names = read.column_names
    if repeated := {name for name in names if names.count(name) > 1}:
        raise ConfigError(f"columns that are there twice: {_listed(repeated)}")
    if absent := {"query_id", "doc_id"} - set(names):
        raise ConfigError(f"no column {_listed(absent)}; there are {_listed(names)}")
    if not read.num_rows:
        raise ConfigError("no rows")
    conditions = _conditions(read.schema.metadata or {})
    read, query_ids, offsets = _sorted(read)
    ranks = as_whole_numbers("rank_first", read["rank_first"], least=1) if "rank_first" in names else None
    if ranks is not None and any(len(np.unique(part)) < len(part) for part in np.split(ranks, offsets[1:-1])):
        raise ConfigError("column rank_first: two candidates of a query have the same rank")
    scorers = [name for name in names if is_score_name(name) and is_number(read[name].type)]
    if not scorers:
        raise ConfigError(f"no column holds scores; there are {_listed(names)}")
    others = [name for name in names if name not in scorers and name not in _OWN_COLUMNS - {"tokens"}]
    table = ScoreTable(
        query_ids,
        offsets,
        tuple(read["doc_id"].to_pylist()),
        {name: _scores(name, read[name]) for name in scorers},
        ranks,
        as_whole_numbers("rel", read["rel"], least=-1, missing=-1) if "rel" in names else None,
        attributes={name: as_values(read[name]) for name in others},
        conditions=conditions,
    )
    return _with_grades(table, read["q_grades"]) if "q_grades" in names else table


def _conditions(metadata: Mapping[bytes, bytes]) -> dict[str, Any]:
    try:
        conditions = json.loads(metadata.get(_METADATA_KEY, b"{}"))
    except ValueError:
        conditions = None
    if not isinstance(conditions, dict):
        raise ConfigError("metadata cascade: not a JSON object")
    return conditions


def _sorted(read: Any) -> tuple[Any, tuple[str, ...], IntArray]:
    """Sort rows by query, then rank_first where it is there, then document. Raises ConfigError for a pair twice."""
    for name in ("query_id", "doc_id"):
        place = read.column_names.index(name)
        read = read.set_column(place, name, as_ids(name, read[name]))
    read = read.sort_by([("query_id", "ascending"), ("doc_id", "ascending")])
    queries, documents = (np.array(read[name].to_pylist(), dtype=object) for name in ("query_id", "doc_id"))
    new = np.concatenate([[True], queries[1:] != queries[:-1]])
    twice = ~new[1:] & (documents[1:] == documents[:-1])
    if twice.any():
        row = int(np.argmax(twice))
        raise ConfigError(f"query {queries[row]} has document {documents[row]} twice")
    if "rank_first" in read.column_names:
        read = read.sort_by([(name, "ascending") for name in ("query_id", "rank_first", "doc_id")])
    starts = np.flatnonzero(new)
    return read, tuple(queries[starts]), np.concatenate([starts, [len(queries)]]).astype(np.int64)


def _scores(name: str, column: Any) -> FloatArray:
    values = as_scores(name, column)
    if not holds_ranks(name):
        return values
    if (values < 1).any():
        raise ConfigError(f"column {name}: ranks begin at 1")
    return -values


def _with_grades(table: ScoreTable, column: Any) -> ScoreTable:
    """Return the table with the judged grades of each query, which every row of it repeats."""
    whole = replace(table, attributes={"q_grades": as_grades("q_grades", column)})
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


def data_sha256(table: ScoreTable, columns: Iterable[str]) -> str:
    """Return ``sha256:`` of ids and of the values of these columns, whatever the layout of the file they came from.

    Columns are scorers, ``rank_first``, ``rel`` or ``q_grades``; the same ones in any order give the
    same digest. Raises ConfigError for another one.
    """
    names = sorted(set(columns))
    digest = hashlib.sha256(json.dumps(names).encode())
    if "q_grades" in names and table.grades is None:
        raise ConfigError("no column q_grades")
    values = [_digestible(table, name) for name in names if name != "q_grades"]
    for query, query_id in enumerate(table.query_ids):
        start, end = table.offsets[query : query + 2]
        rows = sorted(range(start, end), key=table.doc_ids.__getitem__)
        told: list[object] = [query_id, [table.doc_ids[row] for row in rows]]
        told += [table.grades[query]] if "q_grades" in names and table.grades is not None else []
        text = json.dumps(told).encode()
        digest.update(struct.pack("<q", len(text)) + text)
        for column in values:
            digest.update(column[rows].tobytes())
    return f"sha256:{digest.hexdigest()}"


def _digestible(table: ScoreTable, name: str) -> FloatArray:
    """Return a column as little-endian floats with one zero and one NaN."""
    own = {"rank_first": table.rank_first, "rel": table.rel}.get(name)
    values = np.array(table.column(name) if own is None else own, dtype="<f8") + 0.0
    values[np.isnan(values)] = np.nan
    return values
