"""The first stage of evaluations: BM25, and its fusion with vectors where a release has an embedding model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from cascade.errors import lacks_extra
from cascade.replay.collection import Collection
from cascade.replay.columns import FloatArray
from cascade.replay.fusion import fused_order
from cascade.replay.words import term_cutter

__all__ = ["BM25", "DENSE", "FirstStage", "Found", "best_positions", "fuse"]

BM25: Final = "bm25"
DENSE: Final = "dense"


@dataclass(frozen=True, slots=True)
class Found:
    """The candidates of a query in first-stage order, and what each channel scored them, NaN where it did not."""

    documents: tuple[str, ...]
    channels: Mapping[str, FloatArray]


class FirstStage:
    """BM25 (Lucene's variant, k1 1.5, b 0.75) over the terms of :mod:`cascade.replay.words`.

    Raises ConfigError where its library is missing.
    """

    def __init__(self, collection: Collection) -> None:
        self._cut = term_cutter()
        try:
            import bm25s
        except ImportError:
            raise lacks_extra("BM25 needs", "fit") from None
        self._ids = list(collection.documents)
        terms = [self._cut(text) for text in collection.documents.values()]
        self._index: Any = bm25s.BM25(method="lucene") if any(terms) else None
        if self._index is not None:
            self._index.index(terms, show_progress=False)

    def search(self, query: str, most: int) -> list[tuple[str, float]]:
        """Return at most ``most`` (document id, score), best first, without documents that score zero.

        Equal scores keep the collection's order.
        """
        terms = self._cut(query)
        if not terms or self._index is None:
            return []
        scores = self._index.get_scores(terms)
        return [(self._ids[position], float(scores[position])) for position in best_positions(scores, most, above=0)]


def best_positions(
    scores: npt.NDArray[np.floating[Any]], most: int, *, above: float = -np.inf
) -> npt.NDArray[np.int64]:
    """Return the positions of the ``most`` best scores above a bound, best first, equal ones by position."""
    found = np.flatnonzero(scores > above)
    if len(found) > most:
        least = np.partition(scores[found], len(found) - most)[len(found) - most]
        found = found[scores[found] >= least]
    best: npt.NDArray[np.int64] = found[np.argsort(-scores[found], kind="stable")][:most]
    return best


def fuse(found: Mapping[str, Sequence[tuple[str, float]]], depth: int) -> Found:
    """Join what channels found, by reciprocal rank fusion, and cut to ``depth``.

    One channel keeps its own order. A document that a channel did not find has no score from it.
    """
    documents = list(dict.fromkeys(document for run in found.values() for document, _ in run))
    if not documents:
        return Found((), {name: np.zeros(0) for name in found})
    place = {document: position for position, document in enumerate(documents)}
    columns = {name: np.full(len(documents), np.nan) for name in found}
    for name, run in found.items():
        for document, score in run:
            columns[name][place[document]] = score
    order = fused_order(list(columns.values()))[:depth]
    return Found(
        tuple(documents[position] for position in order), {name: values[order] for name, values in columns.items()}
    )
