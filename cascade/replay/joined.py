"""Put score tables of different queries into one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from cascade.errors import ConfigError
from cascade.replay.columns import IntArray
from cascade.replay.table import ScoreTable

__all__ = ["joined"]

Grades = tuple[tuple[int, ...], ...]


def joined(tables: Sequence[ScoreTable]) -> ScoreTable:
    """Return the queries of all tables, with the columns that every table has.

    A table without the grades of all judged documents gives those of its candidates. Raises ConfigError
    for a query that two tables have, where only some have ``rank_first`` or ``rel``, and for a
    scorer that was not the same one in all.
    """
    first, *others = tables
    if not others:
        return first
    for name in ("rank_first", "rel"):
        if len({getattr(table, name) is None for table in tables}) > 1:
            raise ConfigError(f"only some of the tables have a column {name}; use them apart")
    names = [name for table in tables for name in table.query_ids]
    if len(set(names)) < len(names):
        repeated = min(name for name in names if names.count(name) > 1)
        raise ConfigError(f"query {repeated} is in two of the tables")
    places = sorted(range(len(names)), key=names.__getitem__)
    starts = np.concatenate([table.offsets[:-1] + base for table, base in zip(tables, _bases(tables), strict=True)])
    counts = np.concatenate([np.diff(table.offsets) for table in tables])
    rows = np.concatenate([np.arange(starts[place], starts[place] + counts[place]) for place in places])
    documents = [name for table in tables for name in table.doc_ids]
    grades = _grades(tables)
    return ScoreTable(
        query_ids=tuple(names[place] for place in places),
        offsets=np.concatenate([[0], np.cumsum(counts[places])]).astype(np.int64),
        doc_ids=tuple(documents[row] for row in rows),
        scores={
            name: np.concatenate([table.scores[name] for table in tables])[rows]
            for name in first.scores
            if all(name in table.scores for table in others)
        },
        rank_first=_stacked([table.rank_first for table in tables], rows),
        rel=_stacked([table.rel for table in tables], rows),
        grades=None if grades is None else tuple(grades[place] for place in places),
        attributes={
            name: _picked([value for table in tables for value in table.attributes[name]], rows)
            for name in first.attributes
            if all(name in table.attributes for table in others)
        },
        conditions=_conditions([table.conditions for table in tables]),
    )


def _bases(tables: Sequence[ScoreTable]) -> list[int]:
    """Return in which row each table begins."""
    return [0, *np.cumsum([len(table.doc_ids) for table in tables])[:-1].tolist()]


def _stacked(columns: Sequence[IntArray | None], rows: IntArray) -> IntArray | None:
    known = [column for column in columns if column is not None]
    return np.concatenate(known)[rows] if known else None


def _picked(values: Sequence[Any], rows: IntArray) -> tuple[Any, ...]:
    return tuple(values[row] for row in rows)


def _grades(tables: Sequence[ScoreTable]) -> Grades | None:
    if all(table.grades is None for table in tables):
        return None
    return tuple(
        grades for table in tables for grades in (_of_candidates(table) if table.grades is None else table.grades)
    )


def _of_candidates(table: ScoreTable) -> Grades:
    rel = np.zeros(len(table.doc_ids), dtype=np.int64) if table.rel is None else table.rel
    found = (rel[table.rows(query)] for query in range(len(table.query_ids)))
    return tuple(tuple(sorted(grades[grades > 0].tolist(), reverse=True)) for grades in found)


def _conditions(every: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Return what was collected how; what is told of a scorer in two tables, and of its weights, must be the same."""
    scorers: dict[str, Any] = {}
    weights: dict[str, Any] = {}
    for conditions in every:
        for name, told in conditions.get("scorers", {}).items():
            if scorers.setdefault(name, told) != told:
                raise ConfigError(f"column {name}: the tables were scored by different stages")
        for name, observed in conditions.get("observed", {}).items():
            digest = (observed or {}).get("weights_sha256")
            if digest is not None and weights.setdefault(name, digest) != digest:
                raise ConfigError(f"column {name}: the tables were scored by a stage with different weights")
    return {
        "joined": [dict(conditions) for conditions in every],
        "scorers": scorers,
        "observed": {name: {"weights_sha256": digest} for name, digest in weights.items()},
    }
