"""Collections in BEIR's layout, and BM25 as the first stage of every evaluation."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import bm25s
import Stemmer

__all__ = ["Collection", "FirstStage", "load_collection", "shared_data"]


@dataclass(frozen=True, slots=True)
class Collection:
    """Documents (title and text joined), queries and graded judgements, by id."""

    name: str
    documents: Mapping[str, str]
    queries: Mapping[str, str]
    judgements: Mapping[str, Mapping[str, int]]


def shared_data() -> Path:
    """Return the folder of real collections: CASCADE_DATA, else ``shared/data`` beside the checkout."""
    named = os.environ.get("CASCADE_DATA")
    return Path(named) if named else Path(__file__).parents[2] / "shared" / "data"


def load_collection(folder: Path) -> Collection:
    """Read corpus.jsonl, queries.jsonl and qrels.tsv. Queries without a positive judgement are kept."""
    documents = {row["_id"]: f"{row.get('title', '')} {row['text']}".strip() for row in _rows(folder / "corpus.jsonl")}
    queries = {row["_id"]: row["text"] for row in _rows(folder / "queries.jsonl")}
    judgements: dict[str, dict[str, int]] = {}
    with (folder / "qrels.tsv").open(encoding="utf-8") as file:
        for row in csv.DictReader(file, delimiter="\t"):
            judgements.setdefault(row["query-id"], {})[row["corpus-id"]] = int(row["score"])
    return Collection(folder.name, documents, queries, judgements)


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8") as file:
        return [json.loads(line) for line in file if line.strip()]


class FirstStage:
    """BM25 (Lucene's variant, k1 1.5, b 0.75), English stop words and Snowball stemming."""

    def __init__(self, collection: Collection) -> None:
        self._ids = list(collection.documents)
        self._stemmer = Stemmer.Stemmer("english")
        self._index = bm25s.BM25(method="lucene")
        self._index.index(self._tokens(list(collection.documents.values())), show_progress=False)

    def search(self, query: str, most: int) -> list[tuple[str, float]]:
        """Return at most ``most`` (document id, score), best first, without documents that score zero."""
        most = min(most, len(self._ids))
        found, scores = self._index.retrieve(self._tokens([query]), k=most, show_progress=False)
        pairs = zip(found[0].tolist(), scores[0].tolist(), strict=True)
        return [(self._ids[position], score) for position, score in pairs if score > 0]

    def _tokens(self, texts: Sequence[str]) -> object:
        return bm25s.tokenize(list(texts), stopwords="en", stemmer=self._stemmer, show_progress=False)
