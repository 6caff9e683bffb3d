"""The project's own collection, and the lexical scorer that was tried."""

from __future__ import annotations

from pathlib import Path

from cascade.replay.collection import load_collection
from cascade.replay.first_stage import FirstStage
from evals.small_stage import lexical_scores

_OWN = Path(__file__).parents[2] / "evals" / "collections" / "lighthouse"


def test_the_own_collection_is_whole() -> None:
    """Every judged document and query exists, and the demo's query has at least 30 candidates."""
    collection = load_collection(_OWN)
    assert collection.judgements.keys() == collection.queries.keys()
    assert all(grades.keys() <= collection.documents.keys() for grades in collection.judgements.values())
    assert len(FirstStage(collection).search(collection.queries["q01"], 50)) >= 30


def test_lexical_scores_reward_words_and_bigrams() -> None:
    """A document with the query's words in the query's order scores above one with the words apart."""
    together, apart, neither = lexical_scores(
        "lamp oil", ["the lamp oil is low", "the oil of a lamp is", "bread is here now"]
    )
    assert together > apart > neither
