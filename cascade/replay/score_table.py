"""What every scorer said of every candidate of every query. docs/collect.md has the format of its file."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from cascade.errors import ConfigError
from cascade.replay.columns import FloatArray, IntArray
from cascade.replay.fusion import RRF_CONSTANT, fused_order

__all__ = ["OWN_COLUMNS", "ScoreTable", "holds_ranks", "is_score_name", "listed", "no_such_value"]

_RANKS: Final = re.compile(r"_rank(_\d+)?$")
OWN_COLUMNS: Final = frozenset({"query_id", "doc_id", "rank_first", "rel", "q_grades", "tokens"})
"""Columns that are neither a scorer nor, but for ``tokens``, an attribute."""
_ATTRIBUTE_PREFIXES: Final = ("ms_", "q_")
_ENUMERATED: Final = ("source", "q_class")
"""Columns whose values may be told in an error; another may hold anything, text too."""


def holds_ranks(name: str) -> bool:
    """Tell whether a column of this name holds ranks, 1 the best, in place of scores."""
    return _RANKS.search(name) is not None


def is_score_name(name: str) -> bool:
    """Tell whether a numeric column of this name is a scorer's."""
    return name not in OWN_COLUMNS and not name.startswith(_ATTRIBUTE_PREFIXES)


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
            raise ConfigError(f"no column {name}; beside scores this table has {listed(self.attributes)}")
        values = self.attributes[name]
        firsts = tuple(values[start] for start in self.offsets[:-1])
        for query, first in enumerate(firsts):
            if any(value != first for value in values[self.rows(query)]):
                raise ConfigError(f"column {name}: query {self.query_ids[query]} has several values")
        return firsts

    def where(self, name: str, value: object) -> ScoreTable:
        """Return the queries whose attribute reads like ``value``. Raises ConfigError where there are none."""
        chosen = self.matching(name, value)
        if not chosen:
            raise no_such_value(name, map(str, self.of_queries(name)))
        return self.take(chosen)

    def matching(self, name: str, value: object) -> list[int]:
        """Return the queries whose attribute reads like ``value``."""
        return [query for query, found in enumerate(self.of_queries(name)) if str(found) == str(value)]

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


def no_such_value(name: str, values: Iterable[str]) -> ConfigError:
    """Return what is raised where no query has the value asked for, of the values that there are."""
    known = f"; there are {listed(set(values))}" if name in _ENUMERATED else ""
    return ConfigError(f"column {name}: no query has the value asked for{known}")


def listed(names: Iterable[str]) -> str:
    """Return names as an error tells them."""
    return ", ".join(sorted(names)) or "none"
