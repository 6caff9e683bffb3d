"""Make a score table of what was collected."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from cascade.errors import ConfigError
from cascade.replay.collection import Collection
from cascade.replay.columns import FloatArray
from cascade.replay.journal import Entry
from cascade.replay.same_text import TEXT_COLUMN, text_digest
from cascade.replay.table import ScoreTable
from cascade.signals.query import classify, count_identifiers
from cascade.tokens import PAIR_OVERHEAD_TOKENS, estimate_tokens

__all__ = ["assemble"]


def assemble(collection: Collection, entries: Sequence[Entry], conditions: Mapping[str, Any]) -> ScoreTable:
    """Return the table of these entries, all of the same columns; those without a candidate have no row.

    ``tokens`` is an estimate of the whole pair, uncut. ``q_identifiers`` counts the exact identifiers
    of a query, and ``q_text_sha256`` tells equal queries apart from others, since a table holds no text. Raises ConfigError where no entry has a candidate.
    """
    kept = sorted((entry for entry in entries if entry.documents), key=lambda entry: entry.query)
    if not kept:
        raise ConfigError("no query has a candidate, so there is no table to write")
    counts = [len(entry.documents) for entry in kept]
    attributes = {name: tuple(values) for name, values in _attributes(collection, kept).items()}
    return ScoreTable(
        query_ids=tuple(entry.query for entry in kept),
        offsets=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        doc_ids=tuple(document for entry in kept for document in entry.documents),
        scores=_joined([{**entry.channels, **entry.scores} for entry in kept]),
        rank_first=np.concatenate([np.arange(1, count + 1) for count in counts]),
        rel=_judged(collection, kept) if collection.judgements else None,
        grades=tuple(_ideal(collection, entry) for entry in kept) if collection.judgements else None,
        attributes=attributes,
        conditions=conditions,
    )


def _joined(parts: Sequence[Mapping[str, FloatArray]]) -> dict[str, FloatArray]:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _judged(collection: Collection, entries: Sequence[Entry]) -> Any:
    """Return the grade of each row, 0 for a negative one, -1 where the pair is not judged."""
    grades = [
        max(0, judged[document]) if document in judged else -1
        for entry in entries
        for judged in [collection.judgements.get(entry.query, {})]
        for document in entry.documents
    ]
    return np.array(grades, dtype=np.int64)


def _ideal(collection: Collection, entry: Entry) -> tuple[int, ...]:
    grades = collection.judgements.get(entry.query, {}).values()
    return tuple(sorted((grade for grade in grades if grade > 0), reverse=True))


def _attributes(collection: Collection, entries: Sequence[Entry]) -> dict[str, list[Any]]:
    columns: dict[str, list[Any]] = {name: [] for name in ("source", "tokens")}
    columns |= {f"ms_{name}": [] for name in entries[0].ms}
    columns |= {name: [] for name in ("q_tokens", "q_class", "q_identifiers", TEXT_COLUMN)}
    for entry in entries:
        query = collection.queries[entry.query]
        tokens, named = estimate_tokens(query), count_identifiers(query)
        texts = [collection.documents[document] for document in entry.documents]
        columns["tokens"] += [tokens + estimate_tokens(text) + PAIR_OVERHEAD_TOKENS for text in texts]
        of_query = {
            "source": collection.name,
            **{f"ms_{name}": spent for name, spent in entry.ms.items()},
            "q_tokens": tokens,
            "q_class": str(classify(query, named)),
            "q_identifiers": named,
            TEXT_COLUMN: text_digest(query),
        }
        for name, value in of_query.items():
            columns[name] += [value] * len(texts)
    return columns
