"""A tiny collection, and stages that do as they are told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from cascade.replay.collection import Collection
from cascade.testing.stages import ScriptedStage
from cascade.text import Text

__all__ = ["DOCUMENTS", "QUERIES", "ScriptedEmbedder", "collection"]

DOCUMENTS: Final[Mapping[str, str]] = {
    "a": "a lamp and its oil",
    "b": "oil for the lamp, oil for the stove",
    "c": "bread and flour",
    "d": "   ",
    "e": "the tide and the wind turn the lamp",
}
QUERIES: Final[Mapping[str, str]] = {
    "q1": "lamp oil",
    "q2": "what is bread and how is flour made",
    "q3": "zebra",
    "q4": "tide ERR-4711",
}
_DIGESTS: Final = {"corpus.jsonl": "sha256:1", "queries.jsonl": "sha256:2"}


def collection(**fields: Any) -> Collection:
    """Return a collection of five documents, one of them blank, and four queries, three of them judged."""
    judged = {"q1": {"a": 2, "b": 0, "z": 1, "e": -1}, "q2": {"c": 1}, "q3": {}, "other": {"a": 1}}
    return Collection(
        **{"name": "tiny", "documents": DOCUMENTS, "queries": QUERIES, "judgements": judged, "digests": _DIGESTS}
        | fields
    )


class ScriptedEmbedder(ScriptedStage):
    """A stage whose vectors tell how often "lamp", "oil" and any other word occur; ``embedded`` counts texts."""

    embedded = 0

    async def vectors(self, texts: Sequence[Text], *, queries: bool = False) -> npt.NDArray[np.float32]:
        """Return unit vectors of three dimensions."""
        self.embedded += len(texts)
        words = [text.reveal().split() for text in texts]
        counts = [(w.count("lamp"), w.count("oil"), 0.1 + sum(x not in {"lamp", "oil"} for x in w)) for w in words]
        vectors = np.array(counts, dtype=np.float32)
        unit: npt.NDArray[np.float32] = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        return unit
