"""Clipping what is scored to the caller's limits."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cascade.policy.clip import texts_to_score
from cascade.text import Text
from cascade.tokens import PAIR_OVERHEAD_TOKENS, estimate_tokens
from cascade.types import Candidate, Request

_TEXT = st.text(alphabet="ab ", max_size=200)


def _request(query: str, texts: list[str], **limits: int | None) -> Request:
    return Request(Text(query), tuple(Candidate(Text(text)) for text in texts), **limits)  # type: ignore[arg-type]


def test_without_limits_texts_leave_as_they_are() -> None:
    """The very texts of the request, those asked for, in the order asked for."""
    request = _request("q", ["a", "b", "c"])
    query, documents = texts_to_score(request, [2, 0])
    assert query is request.query
    assert documents == [Text("c"), Text("a")]


def test_each_limit_clips_its_own_side() -> None:
    """A limit for documents leaves the query whole, and the other way round."""
    long = "word " * 100
    query, (document,) = texts_to_score(_request(long, [long], max_document_tokens=10), [0])
    assert (query.reveal(), len(document) < 40) == (long, True)
    query, (document,) = texts_to_score(_request(long, [long], max_query_tokens=10), [0])
    assert (len(query) < 40, document.reveal()) == (True, long)


def test_a_short_query_leaves_its_share_of_a_pair_to_the_document() -> None:
    """Half is the query's only where it needs that much."""
    query, (document,) = texts_to_score(_request("bird", ["word " * 100], max_pair_tokens=54), [0])
    assert query.reveal() == "bird"
    assert 40 <= estimate_tokens(document.reveal()) <= 49


def test_a_long_query_keeps_what_short_documents_leave() -> None:
    """Where documents are short, more than half of a pair is the query's."""
    query, (document,) = texts_to_score(_request("word " * 100, ["bird"], max_pair_tokens=54), [0])
    assert document.reveal() == "bird"
    assert 40 <= estimate_tokens(query.reveal()) <= 48


@given(query=_TEXT, texts=st.lists(_TEXT, max_size=4), most=st.integers(PAIR_OVERHEAD_TOKENS + 2, 120))
def test_pairs_keep_within_their_limit_and_texts_are_beginnings(query: str, texts: list[str], most: int) -> None:
    """No pair is estimated above the limit, and nothing is added to any text."""
    clipped, documents = texts_to_score(_request(query, texts, max_pair_tokens=most), range(len(texts)))
    assert query.startswith(clipped.reveal())
    for text, document in zip(texts, documents, strict=True):
        assert text.startswith(document.reveal())
        pair = estimate_tokens(clipped.reveal()) + estimate_tokens(document.reveal()) + PAIR_OVERHEAD_TOKENS
        assert pair <= most
