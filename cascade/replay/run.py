"""Collect a score table from beginning to end: embed, search, score, assemble, write."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path

from cascade.errors import ConfigError
from cascade.guard.deadline import Clock
from cascade.replay.assemble import assemble
from cascade.replay.collect import Collecting, Outcome, score_queries
from cascade.replay.collection import Collection
from cascade.replay.columns import need_arrow
from cascade.replay.conditions import conditions_of, depends_on
from cascade.replay.dense import DenseIndex, Embedder, embed_collection
from cascade.replay.first_stage import FirstStage
from cascade.replay.journal import Entry, Journal
from cascade.replay.table import write_table
from cascade.stages.base import Stage
from cascade.types import StageName

__all__ = ["Asked", "Collected", "Report", "check_output", "collect_table"]

Report = Callable[[str, int, int], None]
"""Told what is counted, how many are done, and of how many."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What a run is asked for. ``columns`` tells which stage each column of scores is."""

    collection: Collection
    queries: tuple[str, ...]
    columns: Mapping[str, StageName]
    out: Path
    depth: int
    dense: bool = False
    concurrency: int = 1

    @property
    def journal(self) -> Path:
        """Return where what is done is kept until the table is written."""
        return self.out.with_name(f"{self.out.name}.journal")

    @property
    def vectors(self) -> Path:
        """Return where vectors of the collection are kept as long."""
        return self.out.with_name(f"{self.out.name}.vectors")


@dataclass(frozen=True, slots=True)
class Collected:
    """How a run ended. ``rows`` is 0 where no table was written: stages failed query after query, or at every one.

    ``scored``, ``without_candidates`` and ``failed`` count queries; ``excluded`` counts, by column, the
    documents of scored queries that a stage left out. ``reasons`` are those of the failed ones.
    """

    rows: int
    scored: int
    without_candidates: int
    excluded: Mapping[str, int]
    failed: int
    reasons: tuple[str, ...]


def check_output(out: Path) -> None:
    """Raise ConfigError where a table could not be written, or would replace one that is done."""
    need_arrow()
    if not out.absolute().parent.is_dir():
        raise ConfigError(f"{out}: its folder is not there")
    if out.exists() and not out.with_name(f"{out.name}.journal").exists():
        raise ConfigError(f"{out}: is there already; remove it, or name another file")


async def collect_table(
    asked: Asked,
    stages: Mapping[StageName, Stage],
    *,
    clock: Clock,
    now: Callable[[], datetime],
    threads: int,
    report: Report = lambda what, done, total: None,
) -> Collected:
    """Score what the journal does not have yet with these started stages, and write the table.

    Queries that failed are left out of it, and the journal then stays, so that another run tries only
    those. Raises ConfigError.
    """
    check_output(asked.out)
    embedder = _embedder(stages) if asked.dense else None
    scorers = {column: stages[stage] for column, stage in asked.columns.items()}
    work = Collecting(asked.collection, scorers, FirstStage(asked.collection), None, asked.depth, clock)
    needed = depends_on(work, embedder, asked.columns)
    with Journal(asked.journal, needed, now().isoformat()) as journal:
        if embedder is not None:
            work = replace(work, dense=await _index(asked, embedder, journal, report))
        outcome = await _score(asked, work, journal, report)
        entries = [journal.entries[name] for name in asked.queries if name in journal.entries]
        told = _counted(entries, work, outcome)
        if told.rows or not told.failed:
            conditions = conditions_of(
                needed,
                work,
                concurrency=asked.concurrency,
                threads=threads,
                counts=asdict(told),
                times={"began": journal.began, "ended": now().isoformat()},
            )
            write_table(asked.out, assemble(asked.collection, entries, conditions))
    if not told.failed:
        asked.journal.unlink()
        asked.vectors.unlink(missing_ok=True)
    return told


def _embedder(stages: Mapping[StageName, Stage]) -> Embedder:
    for stage in (stages.get(StageName.SMALL), stages.get(StageName.LARGE)):
        if isinstance(stage, Embedder):
            return stage
    raise ConfigError("dense: the release has no stage of the adapter onnx-embedding whose vectors could be searched")


async def _index(asked: Asked, embedder: Embedder, journal: Journal, report: Report) -> DenseIndex | None:
    """Return the vectors of the collection, None where every query is done. Vectors without a journal are not used."""
    if journal.is_new:
        asked.vectors.unlink(missing_ok=True)
    if all(name in journal.entries for name in asked.queries):
        return None
    total = len(asked.collection.documents)
    return await embed_collection(
        asked.collection, embedder, asked.vectors, lambda done: report("documents embedded", done, total)
    )


async def _score(asked: Asked, work: Collecting, journal: Journal, report: Report) -> Outcome:
    total = len(asked.queries)
    tried = itertools.count(sum(name in journal.entries for name in asked.queries))
    report("queries scored", next(tried), total)
    return await score_queries(
        work,
        asked.queries,
        journal,
        concurrency=asked.concurrency,
        advance=lambda: report("queries scored", next(tried), total),
    )


def _counted(entries: Sequence[Entry], work: Collecting, outcome: Outcome) -> Collected:
    return Collected(
        rows=0 if outcome.stopped else sum(len(entry.documents) for entry in entries),
        scored=sum(bool(entry.documents) for entry in entries),
        without_candidates=sum(not entry.documents for entry in entries),
        excluded={name: sum(entry.left_out(name) for entry in entries) for name in work.stages},
        failed=len(outcome.failed),
        reasons=tuple(sorted(set(outcome.failed.values()))),
    )
