"""Make a score table of decision records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import numpy as np

from cascade.errors import ConfigError
from cascade.replay.columns import FloatArray
from cascade.replay.conditions import FORMAT, versions
from cascade.replay.record_lines import DecisionLine, HeadLine, Lines, ScorerLine
from cascade.replay.table import ScoreTable, holds_ranks, is_score_name
from cascade.types import SCORING, StageName

__all__ = ["COLUMNS", "Counts", "Gathered", "gather", "table_from_records"]

COLUMNS: Final[Mapping[str, StageName]] = {"small": StageName.SMALL, "large": StageName.LARGE}
"""The column of each stage where none is named."""
_NO_TENANT: Final = "records"
_RESERVED: Final = frozenset({"source", "tokens"})
_SERVER: Final = ("model", "revision", "dtype", "version", "max_length", "weights_sha256")
"""What a server says of itself that its scores depend on, the last of them not in records that were written before it was told."""


@dataclass(frozen=True, slots=True)
class Counts:
    """What became of the lines read.

    ``shadows`` are decisions that no request asked for. ``records`` are those of the release asked for; of these, ``incomplete`` lack a score and
    ``recurring`` are older ones of a query that came again. ``other_server`` were scored while a server said
    otherwise of itself than at the end. ``torn`` lines are no JSON, ``strange`` ones no
    record, ``headless`` ones lack the line that says what they depend on. ``queries`` and ``of_cascade`` count queries of
    the table, the latter those whose large scores a release had chosen; ``keys`` counts hash keys.
    """

    records: int
    queries: int
    incomplete: int
    recurring: int
    other_release: int
    other_server: int
    shadows: int
    torn: int
    strange: int
    headless: int
    of_cascade: int
    keys: int


@dataclass(frozen=True, slots=True)
class Gathered:
    """A table, what became of the records, and the channels that are not in it for what they are called."""

    table: ScoreTable
    counts: Counts
    channels_left_out: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Kept:
    """What of a record becomes rows: arrays (depth,) in first-stage order."""

    query: str
    at: datetime
    head: HeadLine
    documents: tuple[str, ...]
    scores: Mapping[StageName, FloatArray]
    channels: Mapping[str, FloatArray]
    tokens: Sequence[int]
    ms: Mapping[StageName, float | None]
    of_query: Mapping[str, Any]


def table_from_records(
    paths: Sequence[Path],
    *,
    columns: Mapping[str, StageName] = COLUMNS,
    release_digest: str | None = None,
    complete: bool = True,
) -> ScoreTable:
    """Return the table that :func:`gather` makes."""
    return gather(paths, columns=columns, release_digest=release_digest, complete=complete).table


def gather(
    paths: Sequence[Path],
    *,
    columns: Mapping[str, StageName] = COLUMNS,
    release_digest: str | None = None,
    complete: bool = True,
) -> Gathered:
    """Return the table of the queries in some files of records, one row set for each query hash, the latest record's.

    ``complete`` takes only records where both stages scored every candidate within depth, but those that a
    stage left out; without it the others are in, NaN where there is no score, and ``q_complete`` tells.
    ``release_digest`` takes those of one release. Raises ConfigError for a file that cannot be read, for records of
    stages with different fingerprints, and where no record is left.
    """
    lines = Lines(paths)
    tally: Counter[str] = Counter()
    found: dict[str, dict[str, _Kept]] = {}
    for line in lines:
        head = lines.heads[line.head]
        if release_digest is not None and head.release_digest != release_digest:
            tally["other_release"] += 1
            continue
        tally["records"] += 1
        tally["incomplete"] += not line.is_complete
        if line.depth and (line.is_complete or not complete):
            _keep_latest(found.setdefault(line.head, {}), _kept(line, head), tally)
    heads = [lines.heads[name] for name in found]
    _refuse_mixture(heads, found)
    kept = _of_last_server(found, heads, tally)
    latest: dict[str, _Kept] = {}
    for each in kept:
        _keep_latest(latest, each, tally)
    counts = Counts(
        **{name: tally[name] for name in ("records", "incomplete", "recurring", "other_release", "other_server")},
        **asdict(lines.unread),
        shadows=lines.shadows,
        queries=len(latest),
        of_cascade=sum(each.head.mode == "cascade" and each.of_query["q_complete"] for each in latest.values()),
        keys=len({each.head.key for each in latest.values()}),
    )
    if not latest:
        raise ConfigError(_nothing_left(counts, complete=complete))
    return _assembled([latest[name] for name in sorted(latest)], columns, counts)


def _keep_latest(found: dict[str, _Kept], each: _Kept, tally: Counter[str]) -> None:
    before = found.get(each.query)
    if before is not None:
        tally["recurring"] += 1
    if before is None or before.at <= each.at:
        found[each.query] = each


def _kept(line: DecisionLine, head: HeadLine) -> _Kept:
    depth = line.depth
    seen: Counter[str] = Counter()
    documents = []
    for name in line.ids[:depth]:
        seen[name] += 1
        documents.append(name if seen[name] == 1 else f"{name}#{seen[name]}")
    return _Kept(
        query=line.query_hash,
        at=line.time,
        head=head,
        documents=tuple(documents),
        scores={StageName.SMALL: _array(line.small, depth), StageName.LARGE: _array(line.large, depth)},
        channels={name: _array(scores, depth) for name, scores in line.channels.items()},
        tokens=line.tokens[:depth],
        ms={stage: line.ms_a_pair(stage) for stage in SCORING},
        of_query={
            "source": line.tenant or _NO_TENANT,
            "q_tokens": line.q_tokens,
            "q_class": str(line.q_class),
            "q_identifiers": line.q_identifiers,
            "q_complete": line.is_complete,
            "q_mode": head.mode,
            "q_instruction": line.instruction or "none",
        },
    )


def _array(scores: Sequence[float | None], depth: int) -> FloatArray:
    return np.array(scores[:depth], dtype=np.float64)


def _refuse_mixture(heads: Sequence[HeadLine], found: Mapping[str, Mapping[str, _Kept]]) -> None:
    """Raise ConfigError where scores of different models would come under one name."""
    if len({head.fingerprints() for head in heads}) <= 1:
        return
    queries: Counter[str] = Counter()
    for head in heads:
        queries[f"{head.release_digest} ({head.release})"] += len(found[head.id])
    told = ", ".join(f"{name}: {count} queries" for name, count in sorted(queries.items()))
    raise ConfigError(f"records of stages with different fingerprints; take those of one release: {told}")


def _of_last_server(
    found: Mapping[str, Mapping[str, _Kept]], heads: Sequence[HeadLine], tally: Counter[str]
) -> list[_Kept]:
    """Return what was scored by servers that said of themselves what they said last, or nothing yet."""
    last: dict[StageName, tuple[Any, ...]] = {}
    for head in sorted(heads, key=lambda head: max(each.at for each in found[head.id].values())):
        for name, told in _servers(head).items():
            if told is not None:  # one that tells no digest may be of any weights: those told last stand
                last[name] = (*told[:-1], told[-1] or last.get(name, told)[-1])
    kept: list[_Kept] = []
    for head in heads:
        if all(told is None or _alike(told, last[name]) for name, told in _servers(head).items()):
            kept += found[head.id].values()
        else:
            tally["other_server"] += len(found[head.id])
    return kept


def _alike(told: tuple[Any, ...], last: tuple[Any, ...]) -> bool:
    return told[:-1] == last[:-1] and (told[-1] == last[-1] or None in (told[-1], last[-1]))


def _servers(head: HeadLine) -> dict[StageName, tuple[Any, ...] | None]:
    return {
        name: None if each.observed is None else tuple(each.observed.get(key) for key in _SERVER)
        for name, each in head.scorers.items()
    }


def _nothing_left(counts: Counts, *, complete: bool) -> str:
    if not counts.records:
        other = f"; {counts.other_release} are of other releases" if counts.other_release else ""
        return f"no record was found{other}"
    if complete and counts.incomplete == counts.records:
        return "no record has the scores of both stages for every candidate; releases of mode observe make such records"
    return "no record has a candidate within depth"


def _assembled(kept: Sequence[_Kept], columns: Mapping[str, StageName], counts: Counts) -> Gathered:
    sizes = [len(each.documents) for each in kept]
    names = sorted({name for each in kept for name in each.channels})
    channels = [name for name in names if _may_be_column(name, columns)]
    scores = {name: _joined([each.channels.get(name) for each in kept], sizes) for name in channels}
    scores |= {name: _joined([each.scores[stage] for each in kept], sizes) for name, stage in columns.items()}
    per_row: dict[str, tuple[Any, ...]] = {"tokens": tuple(count for each in kept for count in each.tokens)}
    per_query: dict[str, list[Any]] = {
        f"ms_{name}": [each.ms[stage] for each in kept] for name, stage in columns.items()
    }
    per_query |= {name: [each.of_query[name] for each in kept] for name in kept[0].of_query}
    for name, values in per_query.items():
        per_row[name] = tuple(value for value, size in zip(values, sizes, strict=True) for _ in range(size))
    table = ScoreTable(
        query_ids=tuple(each.query for each in kept),
        offsets=np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
        doc_ids=tuple(document for each in kept for document in each.documents),
        scores=scores,
        rank_first=np.concatenate([np.arange(1, size + 1) for size in sizes]),
        attributes=per_row,
        conditions=_conditions(kept, columns, counts),
    )
    return Gathered(table, counts, tuple(name for name in names if name not in channels))


def _may_be_column(name: str, columns: Mapping[str, StageName]) -> bool:
    return is_score_name(name) and not holds_ranks(name) and name not in columns and name not in _RESERVED


def _joined(parts: Sequence[FloatArray | None], sizes: Sequence[int]) -> FloatArray:
    return np.concatenate(
        [np.full(size, np.nan) if part is None else part for part, size in zip(parts, sizes, strict=True)]
    )


def _conditions(kept: Sequence[_Kept], columns: Mapping[str, StageName], counts: Counts) -> dict[str, Any]:
    releases = {each.head.release_digest: each.head for each in kept}
    known: dict[str, ScorerLine] = {}
    for head in {each.head.id: each.head for each in sorted(kept, key=lambda each: each.at)}.values():
        known |= {
            column: head.scorers[stage]
            for column, stage in columns.items()
            if stage in head.scorers and (column not in known or head.scorers[stage].observed is not None)
        }
    return {
        "format": FORMAT,
        "first_stage": "the order in which requests brought their candidates",
        "depth": max(len(each.documents) for each in kept),
        "scorers": {
            column: {"stage": str(each.stage), "fingerprint": dict(each.fingerprint)} for column, each in known.items()
        },
        "observed": {column: None if each.observed is None else dict(each.observed) for column, each in known.items()},
        "collection": {"name": "decision records", "queries": len(kept)},
        "releases": [
            {"release": head.release, "digest": digest, "policy_digest": head.policy_digest, "mode": head.mode}
            for digest, head in sorted(releases.items())
        ],
        "counts": asdict(counts),
        "milliseconds": "ms_<scorer>: a query's rounds divided by the pairs sent, as it was served among others",
        "tokens": "estimate of the whole pair, before a stage cuts it",
        "versions": versions(),
        "times": {
            "began": min(each.at for each in kept).isoformat(),
            "ended": max(each.at for each in kept).isoformat(),
        },
    }
