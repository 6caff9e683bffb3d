"""A score table as an evaluation reads it: what is known of the whole, and then partitions of whole queries in order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from cascade.errors import ConfigError
from cascade.replay.data_digest import DataDigest
from cascade.replay.queries import Roles, is_judged
from cascade.replay.score_table import ScoreTable, no_such_value
from cascade.replay.stream import Unsorted, streamed
from cascade.replay.table import read_table

__all__ = ["IN_MEMORY_ROWS", "Source", "source_in_memory", "source_on_disk"]

IN_MEMORY_ROWS: Final = 1_000_000
"""Up to as many rows, a file that is not sorted by query is read whole and sorted."""
_SCANNED: Final = 1000

Where = Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Source:
    """The chosen queries of a table, each once, sorted by id.

    ``most`` is the largest number of candidates of a query. ``sha256`` covers what an evaluation reads.
    ``partitions`` gives them so many queries at a time, or fewer; it may raise ConfigError.
    """

    query_ids: tuple[str, ...]
    pairs: int
    most: int
    judged: bool
    sha256: str
    first_stage_order: str
    ideal: str
    conditions: Mapping[str, Any]
    partitions: Callable[[int], Iterator[ScoreTable]]


def source_in_memory(name: str, table: ScoreTable, roles: Roles, where: Where = ()) -> Source:
    """Return a table that was read whole. Raises ConfigError as :func:`source_on_disk` does."""
    scan = _Scan(name, roles, where)
    chosen = scan.add(table)

    def partitions(queries: int) -> Iterator[ScoreTable]:
        for start in range(0, len(chosen.query_ids), queries):
            yield chosen.take(range(start, min(start + queries, len(chosen.query_ids))))

    return scan.source(partitions)


def source_on_disk(path: Path, roles: Roles, where: Where = (), in_memory_rows: int = IN_MEMORY_ROWS) -> Source:
    """Check a table's file whole, and return it to be read again, a partition at a time.

    Raises ConfigError naming the file, a column, a row and its rule: for what cannot be read, a column that is not
    there, a choice that no query fits, and for more than ``in_memory_rows`` rows that are not sorted by query.
    """
    scan, version = _Scan(path.name, roles, where), _version(path)
    try:
        for table in streamed(path, _SCANNED):
            scan.add(table)
    except Unsorted as unsorted:
        if unsorted.rows > in_memory_rows:
            raise ConfigError(
                f"table {path}: column query_id: row {unsorted.row} has a lesser id, as text, than the row before it, and "
                f"of {unsorted.rows} rows no more than {in_memory_rows} are sorted here; docs/evaluate.md tells how to"
            ) from None
        return source_in_memory(path.name, read_table(path), roles, where)

    def partitions(queries: int) -> Iterator[ScoreTable]:
        for table in streamed(path, queries):
            if _version(path) != version:
                raise ConfigError(f"table {path}: it changed while it was read")
            chosen = _chosen(table, where)
            if chosen.query_ids:
                yield chosen

    return scan.source(partitions)


def _version(path: Path) -> tuple[int, int] | None:
    """Return what tells one state of a file from another, None where it is not there."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size


def _chosen(table: ScoreTable, where: Where) -> ScoreTable:
    for column, value in where:
        table = table.take(table.matching(column, value))
    return table


class _Scan:
    """What is known of a table once all its queries have gone by."""

    def __init__(self, name: str, roles: Roles, where: Where) -> None:
        self._name, self._roles, self._where = name, roles, where
        self._values: list[set[str]] = [set() for _ in where]  # of the queries that fit the conditions before
        self._ids: list[str] = []
        self._pairs = self._most = 0
        self._judged = False
        self._digest: DataDigest | None = None
        self._head: ScoreTable | None = None

    def add(self, table: ScoreTable) -> ScoreTable:
        """Take in whole queries, and return those that are chosen. Raises ConfigError naming the table."""
        try:
            return self._add(table)
        except ConfigError as error:
            raise ConfigError(f"table {self._name}: {error}") from None

    def _add(self, table: ScoreTable) -> ScoreTable:
        if self._digest is None:
            self._digest = DataDigest(_read_columns(table, self._roles))
            self._head = table.take([])
        for (column, value), known in zip(self._where, self._values, strict=True):
            known |= set(map(str, table.of_queries(column)))
            table = table.take(table.matching(column, value))
        self._digest.add(table)
        self._ids += table.query_ids
        self._pairs += len(table.doc_ids)
        self._most = max(self._most, int(np.diff(table.offsets).max(initial=0)))
        self._judged = self._judged or is_judged(table)
        return table

    def source(self, partitions: Callable[[int], Iterator[ScoreTable]]) -> Source:
        """Return the table. Raises ConfigError naming it where no query is chosen."""
        if not self._ids:
            column, known = next(
                (column, known)
                for (column, value), known in zip(self._where, self._values, strict=True)
                if value not in known
            )
            raise ConfigError(f"table {self._name}: {no_such_value(column, known)}")
        assert self._digest is not None  # noqa: S101  # nosec B101 # there is a query
        assert self._head is not None  # noqa: S101  # nosec B101 # there is a query
        return Source(
            query_ids=tuple(self._ids),
            pairs=self._pairs,
            most=self._most,
            judged=self._judged,
            sha256=self._digest.sha256(),
            first_stage_order=self._head.first_stage_name(self._roles.first_stage),
            ideal="the candidates in the table" if self._head.grades is None else "all judged documents",
            conditions=self._head.conditions,
            partitions=partitions,
        )


def _read_columns(table: ScoreTable, roles: Roles) -> list[str]:
    """Return the columns that an evaluation reads of a table and that its digest covers."""
    own = {"rel": table.rel, "q_grades": table.grades, "rank_first": table.rank_first}
    return [*roles.first_stage, roles.small, roles.large, *(name for name, found in own.items() if found is not None)]
