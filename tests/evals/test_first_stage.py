"""Collections, and BM25 over them."""

from __future__ import annotations

from pathlib import Path

from evals.first_stage import Collection, FirstStage, load_collection
from evals.small_stage import lexical_scores

_OWN = Path(__file__).parents[2] / "evals" / "collections" / "lighthouse"


def test_the_own_collection_is_whole() -> None:
    """Every judged document and query exists, and the demo's query has at least 30 candidates."""
    collection = load_collection(_OWN)
    assert collection.judgements.keys() == collection.queries.keys()
    assert all(grades.keys() <= collection.documents.keys() for grades in collection.judgements.values())
    assert len(FirstStage(collection).search(collection.queries["q01"], 50)) >= 30


def test_bm25_finds_shared_words_and_leaves_out_the_rest() -> None:
    """Results share a stem with the query, best first, without documents that score zero."""
    documents = {"a": "boats float on water", "b": "bread", "c": "a floating boat, a boat", "d": "tides"}
    found = FirstStage(Collection("x", documents, {}, {})).search("floating boats", 50)
    assert {document for document, _ in found} == {"a", "c"}
    assert found[0][1] >= found[1][1] > 0


def test_lexical_scores_reward_words_and_bigrams() -> None:
    """A document with the query's words in the query's order scores above one with the words apart."""
    together, apart, neither = lexical_scores(
        "lamp oil", ["the lamp oil is low", "the oil of a lamp is", "bread is here now"]
    )
    assert together > apart > neither
