"""Plan how documents are split over upstream calls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

__all__ = ["ChunkLimits", "Clip", "Piece", "plan_chunks"]


@dataclass(frozen=True, slots=True)
class Clip:
    """Tokens that a server may keep of a query and of a document; with its own special tokens they make a whole pair."""

    query: int
    document: int


class Piece(NamedTuple):
    """One document on its way: its position in the round, its JSON as sent, and its estimated tokens.

    ``shortened`` tells that it is not sent in full, ``last_try`` that the server has refused it once, and
    ``clip_to`` to how many tokens a server that can is to clip it then. A tuple, since one is made for every
    document of every round, and a frozen dataclass costs three times as much to make.
    """

    position: int
    text: str
    encoded: bytes
    tokens: int
    shortened: bool = False
    last_try: bool = False
    clip_to: Clip | None = None

    def __repr__(self) -> str:  # without text
        return f"Piece(position={self.position}, tokens={self.tokens})"


@dataclass(frozen=True, slots=True)
class ChunkLimits:
    """What one upstream call may hold.

    ``bytes`` counts the encoded documents and their commas. A pair costs ``pair_tokens`` at most,
    since no more of it is read; None where that is not known.
    """

    texts: int
    bytes: int
    tokens: int
    pair_tokens: int | None = None


def plan_chunks(pieces: Sequence[Piece], limits: ChunkLimits, *, query_tokens: int) -> list[list[Piece]]:
    """Split ``pieces`` in order, so that each chunk keeps all limits; a piece over a limit goes alone.

    The query is repeated in every pair, so a pair costs its tokens and the query's.
    """
    chunks: list[list[Piece]] = []
    chunk: list[Piece] = []
    most_texts, most_bytes, most_tokens, pair_tokens = limits.texts, limits.bytes, limits.tokens, limits.pair_tokens
    size = tokens = 0
    for piece in pieces:
        cost, length = piece.tokens + query_tokens, len(piece.encoded) + 1
        if pair_tokens is not None and cost > pair_tokens:
            cost = pair_tokens
        if not chunk or len(chunk) >= most_texts or size + length > most_bytes or tokens + cost > most_tokens:
            chunk = []
            chunks.append(chunk)
            size = tokens = 0
        chunk.append(piece)
        size += length
        tokens += cost
    return chunks
