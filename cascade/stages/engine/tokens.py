"""What a model reads: the token ids of a text or a pair, and what was left out of them."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

__all__ = ["Ids", "Reader", "Reading", "Tokens"]

Ids = npt.NDArray[np.integer[Any]]


class Tokens(NamedTuple):
    """One input of a model: ids and segment ids, both (length,), without padding."""

    ids: Ids
    type_ids: Ids

    def __len__(self) -> int:
        return len(self.ids)

    def __repr__(self) -> str:  # ids are text, to who has the tokenizer
        return f"Tokens(<{len(self.ids)} ids>)"


class Reading(NamedTuple):
    """A document as a model reads it: one input, or one a window; ``truncated`` where that is not all of the pair.

    ``whole`` counts the tokens of the pair before it was cut, ``query`` those of its query; None where the reader cannot tell.
    """

    inputs: list[Tokens]
    truncated: bool
    whole: int | None = None
    query: int | None = None


class Reader(Protocol):
    """Turn text into what a model reads. Safe to call from several threads at once."""

    def query(self, text: str) -> Any:
        """Return what all documents of a query share of its reading."""
        ...

    def read(self, query: Any, document: str) -> Reading:
        """Return the inputs of one document beside ``query``, as `query` returned it."""
        ...
