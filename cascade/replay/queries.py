"""The queries of a score table as a replay sees them: scores in first-stage order, and what they are judged by."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from cascade.errors import ConfigError
from cascade.metrics import Gain, gains_of, ideal_dcg, silver_gains
from cascade.replay.columns import FloatArray, IntArray
from cascade.replay.table import ScoreTable

__all__ = [
    "FEATURES",
    "SLICES",
    "Judgement",
    "Replayed",
    "ReplayedQuery",
    "Roles",
    "is_judged",
    "is_silver",
    "query_digest",
    "replayed",
    "replayed_part",
]

SLICES: Final = ("q_class", "source")
"""Attributes of a table by whose values reports are sliced."""

FEATURES: Final = ("q_class", "q_tokens", "q_identifiers")
"""Attributes of a table that stand for signals of the query's text, which no table holds."""


@dataclass(frozen=True, slots=True)
class Roles:
    """Name the columns that stand for the first-stage channels and the two rerankers.

    ``depth`` is how many candidates, in first-stage order, the rerankers may score; None means all.
    """

    first_stage: tuple[str, ...]
    small: str
    large: str
    depth: int | None = None


@dataclass(frozen=True, slots=True)
class Judgement:
    """What each candidate of a query is worth; arrays (n,) in first-stage order.

    ``ideal`` is the ideal DCG@k and ``total`` the number of relevant documents, over all that were
    judged, candidates or not. ``silver`` tells that the large order stands in for judgements.
    """

    gains: FloatArray
    relevant: NDArray[np.bool_]
    judged: NDArray[np.bool_]
    ideal: float
    total: int
    silver: bool


@dataclass(frozen=True, slots=True)
class ReplayedQuery:
    """One query; arrays (n,) in first-stage order. NaN is not scored: missing, or beyond depth.

    ``pairs`` is what always-large sends. ``slices`` holds the values of :data:`SLICES` that the table
    has, and ``features`` those of :data:`FEATURES`. ``documents`` are the candidates' ids; ``ms`` has
    the milliseconds of a pair by stage, ``small`` or ``large``, where the table tells them.
    """

    small: FloatArray
    large: FloatArray
    channels: Mapping[str, FloatArray]
    tokens: FloatArray | None
    judgement: Judgement
    pairs: int
    id: str = ""
    slices: Mapping[str, str] = field(default_factory=dict)
    features: Mapping[str, Any] = field(default_factory=dict)
    documents: tuple[str, ...] = ()
    ms: Mapping[str, FloatArray] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Replayed:
    """The queries that can be replayed, and how many cannot: a reranker scored none of their candidates."""

    queries: tuple[ReplayedQuery, ...]
    dropped: int
    silver: bool


def replayed(tables: Sequence[ScoreTable], roles: Roles, k: int, gain: Gain) -> Replayed:
    """Read the queries of ``tables``, one after another, for nDCG at ``k``.

    Raises ConfigError for a column that a table lacks or that cannot be in two roles, for tables of which only
    some are judged, and where no query is left.
    """
    silver = is_silver([is_judged(table) for table in tables])
    parts = [replayed_part(table, roles, k, gain, silver=silver) for table in tables]
    found = Replayed(
        tuple(query for part in parts for query in part.queries), sum(part.dropped for part in parts), silver
    )
    if not found.queries:
        raise ConfigError(f"no query has scores of both {roles.small} and {roles.large}")
    return found


def replayed_part(table: ScoreTable, roles: Roles, k: int, gain: Gain, *, silver: bool) -> Replayed:
    """Read the queries of a partition; ``silver`` is that of the whole. There may be none that can be replayed."""
    if roles.large in (roles.small, *roles.first_stage):
        raise ConfigError(f"column {roles.large} is the large reranker; it can be neither the small one nor a channel")
    every = list(_queries(table, roles, k, gain, silver=silver))
    kept = tuple(query for query in every if np.isfinite(query.small).any() and np.isfinite(query.large).any())
    return Replayed(kept, len(every) - len(kept), silver)


def is_silver(judged: Sequence[bool]) -> bool:
    """Tell whether the large order has to judge. Raises ConfigError for tables of which only some are judged."""
    if len(set(judged)) > 1:
        raise ConfigError("some of the tables have judgements and some have none; evaluate them apart")
    return not judged[0]


def is_judged(table: ScoreTable) -> bool:
    """Tell whether a table has a judgement at all."""
    return table.rel is not None and bool((table.rel >= 0).any())


def query_digest(query_id: str) -> str:
    """Return by what an artefact remembers that a query was trained on."""
    return hashlib.sha256(query_id.encode()).hexdigest()[:16]


def _queries(table: ScoreTable, roles: Roles, k: int, gain: Gain, *, silver: bool) -> Iterator[ReplayedQuery]:
    small, large = table.column(roles.small), table.column(roles.large)
    channels = {name: table.column(name) for name in roles.first_stage}
    orders = table.first_stage_order(roles.first_stage)
    tokens = np.asarray(table.attributes["tokens"], dtype=np.float64) if "tokens" in table.attributes else None
    slices = {name: table.attributes[name] for name in SLICES if name in table.attributes}
    features = {name: table.of_queries(name) for name in FEATURES if name in table.attributes}
    ms = _milliseconds(table, roles)
    for number, order in enumerate(orders):
        rows = int(table.offsets[number]) + order
        depth = rows.size if roles.depth is None else min(roles.depth, rows.size)
        beyond = np.arange(rows.size) >= depth
        large_scores = np.where(beyond, np.nan, large[rows])
        yield ReplayedQuery(
            small=np.where(beyond, np.nan, small[rows]),
            large=large_scores,
            channels={name: column[rows] for name, column in channels.items()},
            tokens=None if tokens is None else tokens[rows],
            judgement=_silver(large_scores, k) if silver else _judged(table, number, rows, k, gain),
            pairs=depth,
            id=table.query_ids[number],
            slices={name: _value({values[row] for row in rows}) for name, values in slices.items()},
            features={name: values[number] for name, values in features.items()},
            documents=tuple(table.doc_ids[row] for row in rows),
            ms={stage: column[rows] for stage, column in ms.items()},
        )


def _milliseconds(table: ScoreTable, roles: Roles) -> dict[str, FloatArray]:
    """Return the milliseconds (R,) that each row took a stage, by stage, NaN where a row does not tell."""
    columns = (("small", f"ms_{roles.small}"), ("large", f"ms_{roles.large}"))
    told = {stage: table.attributes.get(name) for stage, name in columns}
    return {stage: np.asarray(column, dtype=np.float64) for stage, column in told.items() if column is not None}


def _value(values: set[object]) -> str:
    """Return the one value that all candidates of a query have, else ``mixed``."""
    return str(values.pop()) if len(values) == 1 else "mixed"


def _judged(table: ScoreTable, number: int, rows: IntArray, k: int, gain: Gain) -> Judgement:
    if table.rel is None:
        raise ConfigError("no column rel")
    grades = table.rel[rows]
    gains = gains_of(grades, gain)
    relevant = grades > 0
    judged = grades >= 0
    if table.grades is None:
        return Judgement(gains, relevant, judged, ideal_dcg(gains, k), int(relevant.sum()), silver=False)
    known = np.asarray(table.grades[number], dtype=np.int64)
    return Judgement(gains, relevant, judged, ideal_dcg(gains_of(known, gain), k), int((known > 0).sum()), silver=False)


def _silver(large: FloatArray, k: int) -> Judgement:
    """Let the large order judge: gain 1 / rank of it, whatever gain was asked for."""
    gains = silver_gains(large)
    nothing = np.zeros(large.size, dtype=np.bool_)
    return Judgement(gains, nothing, nothing, ideal_dcg(gains, k), 0, silver=True)
