"""Score tables in which it is known what each scorer is worth."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np

from cascade.replay.queries import Roles
from cascade.replay.table import ScoreTable

__all__ = ["ERRORS", "ROLES", "misled_by_class", "planted_table", "shuffled"]

ROLES: Final = Roles(("bm25", "dense"), "small", "large")
ERRORS: Final[Mapping[str, float]] = {"bm25": 2.0, "dense": 0.8, "small": 1.0, "large": 0.2}
"""By how much each scorer errs about a worth of deviation one: ``dense`` knows what ``small`` does not."""


def planted_table(
    queries: int = 110, candidates: int = 24, seed: int = 1, *, errors: Mapping[str, float] = ERRORS, **fields: Any
) -> ScoreTable:
    """Return a table whose scorers see the same worth with errors of their own.

    A fifth is relevant, a fifth of these highly. ``fields`` replace those of the table.
    """
    random = np.random.default_rng(seed)
    rows = queries * candidates
    worth = random.normal(size=rows)
    table = ScoreTable(
        query_ids=tuple(f"q{seed}-{number:03}" for number in range(queries)),
        offsets=np.arange(0, rows + 1, candidates, dtype=np.int64),
        doc_ids=tuple(f"d{row % candidates:03}" for row in range(rows)),
        scores={name: worth + error * random.normal(size=rows) for name, error in errors.items()},
        rel=(worth > 0.84).astype(np.int64) + (worth > 1.75),
        attributes={"q_class": tuple(("identifier", "other")[row // candidates % 2] for row in range(rows))},
    )
    return replace(table, **fields)


def misled_by_class(queries: int = 120, candidates: int = 60) -> ScoreTable:
    """Return a table whose small scores know relevance, but for identifiers: beyond the first ten they mislead."""
    table = planted_table(queries, candidates)
    channel = np.tile(np.arange(candidates, 0, -1, dtype=np.float64), queries)
    misled = (channel <= candidates - 10) & (np.array(table.attributes["q_class"]) == "identifier")
    relevance = np.zeros(len(channel)) if table.rel is None else table.rel.astype(np.float64)
    small = np.where(misled, 10.0 - relevance, relevance)
    return replace(table, scores={**table.scores, "bm25": channel, "dense": channel, "small": small})


def shuffled(table: ScoreTable, name: str, seed: int = 0) -> ScoreTable:
    """Return the table with one scorer's scores shuffled within each query."""
    random = np.random.default_rng(seed)
    scores = table.column(name).copy()
    for query in range(len(table.query_ids)):
        rows = table.rows(query)
        scores[rows] = random.permutation(scores[rows])
    return replace(table, scores={**table.scores, name: scores})
