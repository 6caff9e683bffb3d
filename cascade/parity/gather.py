"""Gather the lists that both sides score: from tables, from a collection, or from a table and the texts behind it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from cascade.errors import ConfigError
from cascade.parity.lists import CandidateList, Runs
from cascade.parity.pairs import OneSided
from cascade.parity.slices import labels_of, length_label
from cascade.parity.sources import Source
from cascade.replay.collection import Collection
from cascade.replay.first_stage import FirstStage

__all__ = ["Gathered", "of_collection", "of_table", "of_tables"]


@dataclass(frozen=True, slots=True)
class Gathered:
    """Lists, the scores that tables have of them, and what was left out on the way.

    ``queries_only_*`` count queries that only one side has; ``without_text`` those of a table whose query or
    none of whose documents the collection has; ``without_candidates`` queries that the first stage found nothing for.
    """

    lists: tuple[CandidateList, ...]
    ref: Runs | None = None
    cand: Runs | None = None
    only_ref: OneSided = field(default_factory=OneSided)
    only_cand: OneSided = field(default_factory=OneSided)
    queries_only_ref: int = 0
    queries_only_cand: int = 0
    without_candidates: int = 0
    of_queries: int = 0


def of_tables(ref: Source, cand: Source, queries: int | None, depth: int | None, max_length: int | None) -> Gathered:
    """Join two tables by query and document. Raises ConfigError where they have no pair in common.

    Lists are in REF's first-stage order. A judgement that only one table has counts; one that both have and that
    differs is an error.
    """
    places = {name: number for number, name in enumerate(cand.table.query_ids)}
    common = _sampled([name for name in ref.table.query_ids if name in places], queries)
    if not common:
        raise ConfigError(f"{ref.name} and {cand.name} have no query in common")
    chosen = set(common)
    lists, ours, theirs = [], {}, {}
    only_ref, only_cand = OneSided(), OneSided()
    for number, name in enumerate(ref.table.query_ids):
        if name not in chosen:
            continue
        left, right = ref.query(number, depth), cand.query(places[name], depth)
        kept = [document for document in left.rows if document in right.rows]
        only_ref = only_ref.and_then(_missing(name, left.rows, right.rows))
        only_cand = only_cand.and_then(_missing(name, right.rows, left.rows))
        if not kept:
            continue
        lists.append(
            CandidateList(
                id=name,
                doc_ids=tuple(kept),
                grades=_grades(ref, cand, name, [(left.grade(each), right.grade(each)) for each in kept]),
                ideal=left.ideal or right.ideal,
                labels=_labels(ref, [left.rows[each] for each in kept], max_length),
            )
        )
        ours[name] = ref.scores[[left.rows[each] for each in kept]][None, :]
        theirs[name] = cand.scores[[right.rows[each] for each in kept]][None, :]
    if not lists:
        raise ConfigError(f"{ref.name} and {cand.name} have no pair of query and document in common")
    shared = len(set(ref.table.query_ids) & places.keys())
    return Gathered(
        tuple(lists),
        ours,
        theirs,
        only_ref,
        only_cand,
        len(ref.table.query_ids) - shared,
        len(cand.table.query_ids) - shared,
        of_queries=shared,
    )


def of_table(
    source: Source, collection: Collection, queries: int | None, depth: int | None, max_length: int | None, *, ref: bool
) -> Gathered:
    """Return the lists of a table with the texts of a collection, for a stage to score.

    What the collection has no text for is counted as the table's alone. Raises ConfigError where nothing is left.
    """
    table = source.table
    known = [name for name in table.query_ids if name in collection.queries]
    chosen = set(_sampled(known, queries))
    lists, runs, alone = [], {}, OneSided()
    for number, name in enumerate(table.query_ids):
        if name not in chosen:
            continue
        found = source.query(number, depth)
        kept = [document for document in found.rows if document in collection.documents]
        alone = alone.and_then(_missing(name, found.rows, collection.documents))
        if not kept:
            continue
        query, texts = collection.queries[name], tuple(collection.documents[each] for each in kept)
        of_rows = _labels(source, [found.rows[each] for each in kept], None)
        base = CandidateList(name, tuple(kept), query, texts, labels=of_rows | labels_of(query, texts, max_length))
        judged = _judged(collection, base)
        if judged.grades is None and found.is_judged:
            judged = replace(judged, grades=tuple(found.grade(each) for each in kept), ideal=found.ideal)
        lists.append(judged)
        runs[name] = source.scores[[found.rows[each] for each in kept]][None, :]
    if not lists:
        raise ConfigError(f"{source.name}: the collection {collection.name} has the text of none of its pairs")
    missing = len(table.query_ids) - len(known)
    made = Gathered(tuple(lists), of_queries=len(known))
    if ref:
        return replace(made, ref=runs, only_ref=alone, queries_only_ref=missing)
    return replace(made, cand=runs, only_cand=alone, queries_only_cand=missing)


def of_collection(
    collection: Collection, names: Sequence[str], first_stage: FirstStage, depth: int, max_length: int | None
) -> Gathered:
    """Return BM25's first ``depth`` candidates of each of these queries."""
    lists = []
    for name in names:
        query = collection.queries[name]
        found = [document for document, _ in first_stage.search(query, depth)]
        if not found:
            continue
        texts = tuple(collection.documents[document] for document in found)
        base = CandidateList(name, tuple(found), query, texts, labels=labels_of(query, texts, max_length))
        lists.append(_judged(collection, base))
    if not lists:
        raise ConfigError(f"dataset {collection.name}: the first stage found nothing for any of its queries")
    return Gathered(tuple(lists), without_candidates=len(names) - len(lists), of_queries=len(names))


def _sampled(names: Sequence[str], most: int | None) -> list[str]:
    """Return the same sample as ``collect`` takes: by the SHA-256 of the ids."""
    return sorted(names, key=lambda name: hashlib.sha256(name.encode()).digest())[:most]


def _missing(query: str, here: Mapping[str, int], there: Mapping[str, object]) -> OneSided:
    absent = [document for document in here if document not in there]
    return OneSided(len(absent), (query, absent[0])) if absent else OneSided()


def _grades(ref: Source, cand: Source, query: str, both: Sequence[tuple[int, int]]) -> tuple[int, ...] | None:
    if any(left >= 0 and right >= 0 and left != right for left, right in both):
        raise ConfigError(f"{ref.name} and {cand.name} judge a document of query {query} differently")
    if not (ref.is_judged or cand.is_judged):
        return None
    return tuple(max(left, right) for left, right in both)


def _labels(source: Source, rows: Sequence[int], max_length: int | None) -> dict[str, tuple[str, ...]]:
    """Return the labels that a table tells of its rows: source, class of the query, and length by its estimate."""
    told = source.table.attributes
    labels = {name: tuple(str(told[name][row]) for row in rows) for name in ("source", "q_class") if name in told}
    tokens: list[Any] = [told["tokens"][row] for row in rows] if "tokens" in told else [None]
    if max_length is not None and None not in tokens:
        labels["length"] = tuple(length_label(float(each), max_length) for each in tokens)
    return labels


def _judged(collection: Collection, item: CandidateList) -> CandidateList:
    judged = collection.judgements.get(item.id)
    if judged is None:
        return item
    return replace(
        item,
        grades=tuple(max(0, judged[name]) if name in judged else -1 for name in item.doc_ids),
        ideal=tuple(sorted((grade for grade in judged.values() if grade > 0), reverse=True)),
    )
