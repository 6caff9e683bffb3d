"""Search a collection by the vectors of a release's own embedding model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from cascade.replay.collection import Collection
from cascade.replay.first_stage import best_positions
from cascade.stages.base import Stage
from cascade.text import Text

__all__ = ["DenseIndex", "Embedder", "embed_collection"]

_BLOCK: Final = 64
_BYTES: Final = np.dtype("<f4").itemsize

Vectors = npt.NDArray[np.float32]


@runtime_checkable
class Embedder(Stage, Protocol):
    """A stage that can tell the unit vectors of texts, one a row."""

    async def vectors(self, texts: Sequence[Text], *, queries: bool = False) -> npt.NDArray[np.float32]:
        """Return the vectors (n, d) of documents or of queries."""
        ...


class DenseIndex:
    """The vectors of a collection, searched whole: no approximation. Blank documents are never found."""

    def __init__(self, collection: Collection, embedder: Embedder, vectors: Vectors) -> None:
        self._ids = list(collection.documents)
        self._blank = np.array([Text(text).is_blank for text in collection.documents.values()])
        self._embedder = embedder
        self._vectors = vectors

    async def search(self, query: str, most: int) -> list[tuple[str, float]]:
        """Return at most ``most`` (document id, cosine), best first, equal ones in the collection's order."""
        (vector,) = await self._embedder.vectors([Text(query)], queries=True)
        scores = np.where(self._blank, -np.inf, self._vectors @ vector)
        return [(self._ids[position], float(scores[position])) for position in best_positions(scores, most)]


async def embed_collection(
    collection: Collection, embedder: Embedder, path: Path, advance: Callable[[int], None] = lambda done: None
) -> DenseIndex:
    """Embed every document, appending to a file of raw vectors, and go on where that file ends.

    The caller answers for the file being of this collection and model. ``advance`` is told how many
    documents are done.
    """
    texts = list(collection.documents.values())
    width = int((await embedder.vectors([Text("probe")])).shape[1])
    with path.open("ab") as file:
        done = min(len(texts), file.tell() // (width * _BYTES))
        file.truncate(done * width * _BYTES)
        while done < len(texts):
            advance(done)
            block = [Text(text) for text in texts[done : done + _BLOCK]]
            made: Any = await embedder.vectors(block)
            file.write(made.astype("<f4").tobytes())
            file.flush()
            done += len(block)
    advance(done)
    vectors = np.fromfile(path, dtype="<f4").reshape(len(texts), width)
    return DenseIndex(collection, embedder, vectors.astype(np.float32, copy=False))
