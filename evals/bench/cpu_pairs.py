"""Requests of pairs with lengths that are wanted: ``short``, ``mixed`` and ``long``.

Words come from a collection in BEIR's layout, or from a list of neutral ones; lengths from a seed. No text is written
anywhere: it goes to the engines through pipes.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import tokenizers

__all__ = ["WORKLOADS", "Request", "requests_of", "texts_of"]

WORKLOADS: Final = {"short": (33, 100), "mixed": (33, 400), "long": (400, 512)}
"""Least and greatest tokens of a pair, its query and marks included; uniform between."""

_NEUTRAL: Final = [
    "harbour",
    "keeper",
    "lamp",
    "tide",
    "winter",
    "bread",
    "oven",
    "river",
    "stone",
    "bridge",
    "garden",
    "letter",
    "market",
    "engine",
    "window",
    "field",
    "copper",
    "valley",
    "signal",
    "weather",
    "timber",
    "northern",
    "quiet",
    "measured",
    "early",
    "the",
    "of",
    "a",
    "and",
    "in",
    "with",
    "under",
    "before",
    "after",
    "between",
]
_NEUTRAL_TEXTS: Final = 200
_LONGEST: Final = 2000


@dataclass(frozen=True, slots=True)
class Request:
    """A query, its documents, and how many tokens each pair has."""

    query: str
    documents: tuple[str, ...]
    tokens: tuple[int, ...]


def texts_of(collection: Path | None, seed: int) -> tuple[list[str], list[str]]:
    """Return queries and documents of a collection, or made up where none is given."""
    if collection is not None:
        queries, corpus = (
            [json.loads(line)["text"] for line in (collection / name).read_text(encoding="utf-8").splitlines()]
            for name in ("queries.jsonl", "corpus.jsonl")
        )
        return queries, [text for text in corpus if text.strip()]
    draw = np.random.default_rng(seed)
    made = [" ".join(draw.choice(_NEUTRAL, size)) for size in (8, 60) for _ in range(_NEUTRAL_TEXTS)]
    return made[:_NEUTRAL_TEXTS], made[_NEUTRAL_TEXTS:]


def requests_of(
    texts: tuple[Sequence[str], Sequence[str]],
    tokenizer: Path,
    bounds: tuple[int, int],
    *,
    requests: int,
    candidates: int,
    seed: int,
) -> list[Request]:
    """Return requests whose pairs have token counts uniform between ``bounds``, the same ones for a seed.

    A document is documents of the collection one after the other, from a random one on, cut where the pair is as long as
    it shall be.
    """
    reader = tokenizers.Tokenizer.from_file(str(tokenizer))
    reader.no_padding()
    reader.no_truncation()
    draw = np.random.default_rng(seed)
    queries, documents = texts
    return [_request(reader, queries, documents, bounds, candidates, draw) for _ in range(requests)]


def _request(
    reader: tokenizers.Tokenizer,
    queries: Sequence[str],
    documents: Sequence[str],
    bounds: tuple[int, int],
    candidates: int,
    draw: np.random.Generator,
) -> Request:
    query = _cut(reader, queries[int(draw.integers(len(queries)))], bounds[0] // 2)
    beside = len(reader.encode(query, "").ids)
    made = []
    for wanted in draw.integers(bounds[0], bounds[1] + 1, candidates):
        text = ""
        while len(text) < _LONGEST * 2 and len(reader.encode(text, add_special_tokens=False).ids) < wanted:
            text += documents[int(draw.integers(len(documents)))] + " "
        made.append(_cut(reader, text, int(wanted) - beside))
    return Request(query, tuple(made), tuple(len(reader.encode(query, text).ids) for text in made))


def _cut(reader: tokenizers.Tokenizer, text: str, tokens: int) -> str:
    """Return the beginning of a text that has at most so many tokens."""
    read = reader.encode(text, add_special_tokens=False)
    return text if len(read.ids) <= tokens else text[: read.offsets[tokens - 1][1]].strip()
