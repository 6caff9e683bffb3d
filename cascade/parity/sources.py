"""A column of a score table as a side of a comparison."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from cascade.errors import ConfigError
from cascade.parity.lists import FloatArray
from cascade.replay.table import ScoreTable, holds_ranks
from cascade.types import ScoreSpace

__all__ = ["OfQuery", "Source", "source_of"]


@dataclass(frozen=True, slots=True)
class OfQuery:
    """A query's documents in first-stage order with the row of each, and what is judged."""

    rows: Mapping[str, int]
    rel: Any
    ideal: tuple[int, ...]
    is_judged: bool

    def grade(self, document: str) -> int:
        """Return the grade of a document, -1 where it is not judged."""
        return -1 if self.rel is None else int(self.rel[self.rows[document]])


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """A table and one of its columns. ``file`` is the file's name."""

    file: str
    table: ScoreTable
    column: str
    scores: FloatArray

    @property
    def name(self) -> str:
        """Return how errors name it."""
        return f"table {self.file}, column {self.column}"

    @property
    def is_judged(self) -> bool:
        """Tell whether the table has a judgement."""
        return self.table.rel is not None and bool((self.table.rel >= 0).any())

    @property
    def ranks(self) -> bool:
        """Tell whether the column holds ranks in place of scores."""
        return holds_ranks(self.column)

    @property
    def fingerprint(self) -> Mapping[str, Any]:
        """Return what the table says that the column's scores depend on, empty where it does not."""
        scorers = self.table.conditions.get("scorers")
        told = scorers.get(self.column) if isinstance(scorers, dict) else None
        found = told.get("fingerprint") if isinstance(told, dict) else None
        return found if isinstance(found, dict) else {}

    @property
    def space(self) -> ScoreSpace | None:
        """Return the space that the table declares for the column."""
        told = self.fingerprint.get("score_space")
        return ScoreSpace(told) if told in list(ScoreSpace) else None

    @property
    def max_length(self) -> int | None:
        """Return the longest pair in tokens that the table declares for the column."""
        told = self.fingerprint.get("max_length")
        return told if type(told) is int and told > 0 else None

    @property
    def ms_per_pair(self) -> dict[str, float]:
        """Return milliseconds a pair by query, empty where the table does not have them."""
        name = f"ms_{self.column}"
        if name not in self.table.attributes:
            return {}
        told = zip(self.table.query_ids, self.table.of_queries(name), strict=True)
        return {query: float(value) for query, value in told if value is not None}

    def query(self, number: int, depth: int | None) -> OfQuery:
        """Return the documents of a query, the first ``depth`` of them. Raises ConfigError for a depth without an order."""
        table = self.table
        if depth is not None and table.rank_first is None:
            raise ConfigError(f"{self.name}: --depth needs the column rank_first")
        rows = range(*table.rows(number).indices(len(table.doc_ids)))  # in first-stage order where that is known
        rel = table.rel
        if table.grades is not None:
            ideal = tuple(table.grades[number])
        else:
            ideal = () if rel is None else tuple(sorted((int(rel[row]) for row in rows if rel[row] > 0), reverse=True))
        return OfQuery({table.doc_ids[row]: row for row in rows[:depth]}, rel, ideal, self.is_judged)


def source_of(file: str, table: ScoreTable, column: str) -> Source:
    """Return a column as a side. Raises ConfigError where it is no scorer or scores nothing."""
    try:
        scores = table.column(column)
    except ConfigError as error:
        raise ConfigError(f"table {file}: {error}") from None
    if not np.isfinite(scores).any():
        raise ConfigError(f"table {file}: column {column}: no row has a score")
    return Source(file, table, column, scores)
