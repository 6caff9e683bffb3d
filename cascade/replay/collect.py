"""Score the candidates of every query with a release's stages."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_attempt, wait_exponential

from cascade.errors import CascadeError, ConfigError, StageError
from cascade.guard.deadline import Clock, Deadline
from cascade.replay.collection import Collection
from cascade.replay.columns import FloatArray
from cascade.replay.dense import DenseIndex
from cascade.replay.first_stage import BM25, DENSE, FirstStage, Found, fuse
from cascade.replay.journal import Entry, Journal
from cascade.stages.base import Stage
from cascade.text import Text

__all__ = ["Collecting", "Outcome", "choose_queries", "score_queries"]

_ROUND_MS: Final = 600_000.0
_ATTEMPTS: Final = 3
_FAILURES_IN_A_ROW: Final = 5


@dataclass(frozen=True, slots=True)
class Collecting:
    """What queries are scored with. ``stages`` goes by the column that a stage's scores become."""

    collection: Collection
    stages: Mapping[str, Stage]
    lexical: FirstStage
    dense: DenseIndex | None
    depth: int
    clock: Clock


@dataclass(slots=True)
class Outcome:
    """What became of the queries that were tried.

    ``failed`` maps a query to the stage and the reason; ``in_a_row`` counts those that failed without
    one scored between.
    """

    failed: dict[str, str] = field(default_factory=dict)
    in_a_row: int = 0

    @property
    def stopped(self) -> bool:
        """Tell whether so many failed in a row that the rest was not tried."""
        return self.in_a_row >= _FAILURES_IN_A_ROW


def choose_queries(collection: Collection, most: int | None) -> tuple[str, ...]:
    """Return the judged queries of a collection, all where it has no judgements, or ``most`` of them.

    They are in the order of the SHA-256 of their ids: a sample that is the same every time, leans
    to no part of the file, and lies within every larger one. Raises ConfigError where there is none.
    """
    known = [name for name in collection.queries if not collection.judgements or name in collection.judgements]
    if not known:
        raise ConfigError(f"dataset {collection.name}: no query of queries.jsonl is judged")
    return tuple(sorted(known, key=lambda name: hashlib.sha256(name.encode()).digest())[:most])


async def score_queries(
    work: Collecting,
    queries: Sequence[str],
    journal: Journal,
    *,
    concurrency: int,
    advance: Callable[[], None] = lambda: None,
) -> Outcome:
    """Score every query that the journal does not have yet, ``concurrency`` at a time, and add it there.

    A round that fails is tried three times, then its query is left out and counted. ``advance`` is
    called once a query tried.
    """
    outcome = Outcome()
    waiting = iter([name for name in queries if name not in journal.entries])
    try:
        async with asyncio.TaskGroup() as workers:
            for _ in range(concurrency):
                workers.create_task(_work_off(work, waiting, journal, outcome, advance))
    except* CascadeError as group:
        raise group.exceptions[0] from None
    return outcome


async def _work_off(
    work: Collecting, waiting: Iterator[str], journal: Journal, outcome: Outcome, advance: Callable[[], None]
) -> None:
    for name in waiting:
        if outcome.stopped:
            return
        try:
            journal.add(await _entry(work, name))
        except StageError as error:
            outcome.failed[name] = f"{error.stage}: {error.reason} ({error.code})"
            outcome.in_a_row += 1
        else:
            outcome.in_a_row = 0
        advance()


async def _entry(work: Collecting, name: str) -> Entry:
    """Find the candidates of a query, and score them with each stage. Raises StageError."""
    found = await _find(work, work.collection.queries[name])
    scored = {column: await _score(work, stage, name, found.documents) for column, stage in work.stages.items()}
    scores = {column: values for column, (values, _) in scored.items()}
    return Entry(
        name, found.documents, found.channels, scores, {column: spent for column, (_, spent) in scored.items()}
    )


async def _find(work: Collecting, query: str) -> Found:
    runs = {BM25: work.lexical.search(query, work.depth)}
    if work.dense is not None:
        runs[DENSE] = await work.dense.search(query, work.depth)
    return fuse(runs, work.depth)


async def _score(work: Collecting, stage: Stage, name: str, documents: Sequence[str]) -> tuple[FloatArray, float]:
    """Return a score a document, NaN for one left out, and milliseconds a pair sent. Raises StageError."""
    if not documents:
        return np.zeros(0), 0.0
    query = Text(work.collection.queries[name])
    texts = [Text(work.collection.documents[document]) for document in documents]
    pairs = sum(not text.is_blank for text in texts)
    async for attempt in AsyncRetrying(
        retry=retry_if_exception_type(StageError),
        stop=stop_after_attempt(_ATTEMPTS),
        wait=wait_exponential(multiplier=1, max=30),
        reraise=True,
    ):
        with attempt:
            began = work.clock()
            deadline = Deadline.after_ms(_ROUND_MS, work.clock)
            answer = await stage.score(query, texts, deadline=deadline, call_id="collect")
            elapsed_ms = (work.clock() - began) * 1000
    scores = np.array([np.nan if score is None else score for score in answer.scores], dtype=np.float64)
    return scores, elapsed_ms / max(1, pairs)
