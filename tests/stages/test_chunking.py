"""Plans: how documents are split over calls."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cascade.stages.chunking import ChunkLimits, Piece, plan_chunks

PIECES = st.lists(st.tuples(st.integers(0, 400), st.integers(1, 300)), max_size=60).map(
    lambda sizes: [Piece(i, "x" * size, b"x" * size, tokens) for i, (size, tokens) in enumerate(sizes)]
)
LIMITS = st.builds(ChunkLimits, texts=st.integers(1, 40), bytes=st.integers(1, 2_000), tokens=st.integers(16, 2_000))


def size_of(chunk: list[Piece]) -> int:
    """Return the encoded documents and a comma each."""
    return sum(len(piece.encoded) + 1 for piece in chunk)


def tokens_of(chunk: list[Piece], query_tokens: int) -> int:
    """Return the tokens of the pairs: the query counts in each."""
    return sum(piece.tokens + query_tokens for piece in chunk)


@given(pieces=PIECES, limits=LIMITS, query_tokens=st.integers(1, 200))
def test_d2_every_piece_is_sent_once_and_in_order(pieces: list[Piece], limits: ChunkLimits, query_tokens: int) -> None:
    """Chunks joined end to end are the pieces, and no chunk is empty."""
    chunks = plan_chunks(pieces, limits, query_tokens=query_tokens)
    assert [piece for chunk in chunks for piece in chunk] == pieces
    assert all(chunks)


@given(pieces=PIECES, limits=LIMITS, query_tokens=st.integers(1, 200))
def test_d1_every_chunk_keeps_every_limit_unless_it_is_one_piece(
    pieces: list[Piece], limits: ChunkLimits, query_tokens: int
) -> None:
    """Texts, bytes and tokens of a call stay within bounds; only a piece that is over a limit by itself goes alone."""
    for chunk in plan_chunks(pieces, limits, query_tokens=query_tokens):
        assert len(chunk) <= limits.texts
        if len(chunk) > 1:
            assert size_of(chunk) <= limits.bytes
            assert tokens_of(chunk, query_tokens) <= limits.tokens


@given(pieces=PIECES, limits=LIMITS, query_tokens=st.integers(1, 200))
def test_a_chunk_ends_only_where_the_next_piece_would_break_a_limit(
    pieces: list[Piece], limits: ChunkLimits, query_tokens: int
) -> None:
    """No more calls are made than the limits ask for."""
    chunks = plan_chunks(pieces, limits, query_tokens=query_tokens)
    for chunk, following in pairwise(chunks):
        longer = [*chunk, following[0]]
        assert (
            len(longer) > limits.texts
            or size_of(longer) > limits.bytes
            or tokens_of(longer, query_tokens) > limits.tokens
        )


def test_limits_are_inclusive() -> None:
    """A chunk may be as large as each limit says, and no larger."""
    pieces = [Piece(i, "abcd", b"abcd", 6) for i in range(4)]
    assert len(plan_chunks(pieces, ChunkLimits(texts=4, bytes=20, tokens=40), query_tokens=4)) == 1
    for tight in (ChunkLimits(3, 20, 40), ChunkLimits(4, 19, 40), ChunkLimits(4, 20, 39)):
        assert [len(chunk) for chunk in plan_chunks(pieces, tight, query_tokens=4)] == [3, 1]


@pytest.mark.parametrize(
    "limits", [ChunkLimits(3, 10**6, 10**6), ChunkLimits(99, 15, 10**6), ChunkLimits(99, 10**6, 30)]
)
def test_each_chunk_counts_from_nothing(limits: ChunkLimits) -> None:
    """Texts, bytes and tokens of one call say nothing about the next."""
    pieces = [Piece(i, "abcd", b"abcd", 6) for i in range(9)]
    assert [len(chunk) for chunk in plan_chunks(pieces, limits, query_tokens=4)] == [3, 3, 3]


def test_g1_a_piece_prints_without_its_text() -> None:
    """A document on its way is as silent as one at rest."""
    assert "canary" not in repr(Piece(0, "canary", b'"canary"', 2))
