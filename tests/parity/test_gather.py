"""Lists out of tables and collections."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cascade.errors import ConfigError
from cascade.parity.gather import of_collection, of_table, of_tables
from cascade.parity.pairs import OneSided
from cascade.parity.sources import source_of
from cascade.replay.first_stage import FirstStage
from cascade.types import ScoreSpace
from tests.parity.arrange import source, table
from tests.replay.arrange import collection

_FOUR = [1.0, 2.0, 3.0, 4.0]


def test_tables_are_joined_by_query_and_document() -> None:
    """Whatever order their rows are in; what only one has is counted with its first."""
    ref = table({"a": _FOUR}, rank_first=np.array([2, 1, 1, 2]))
    cand = table({"b": [10.0, 20.0, 30.0, 40.0]}, query_ids=("q0", "q9"), doc_ids=("d1", "d7", "d0", "d1"))
    found = of_tables(source(ref, "a"), source(cand, "b", "c.parquet"), None, None, None)
    assert [(item.id, item.doc_ids) for item in found.lists] == [("q0", ("d1",))]
    assert found.ref is not None
    assert found.cand is not None
    assert (found.ref["q0"].tolist(), found.cand["q0"].tolist()) == ([[2.0]], [[10.0]])
    assert (found.only_ref, found.only_cand) == (OneSided(1, ("q0", "d0")), OneSided(1, ("q0", "d7")))
    assert (found.queries_only_ref, found.queries_only_cand, found.of_queries) == (1, 1, 1)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"query_ids": ("x", "y")}, "have no query in common"),
        ({"doc_ids": ("x", "y", "x", "y")}, "have no pair of query and document in common"),
        ({"rel": np.array([1, 0, 0, 0])}, "judge a document of query q0 differently"),
    ],
)
def test_tables_that_do_not_fit_are_refused_by_name(fields: dict[str, Any], message: str) -> None:
    """Both files and columns are told."""
    ref = table({"a": _FOUR}, rel=np.array([0, 0, 0, -1]))
    cand = table({"b": _FOUR}, **fields)
    with pytest.raises(ConfigError, match=r"table r\.parquet, column a and table c\.parquet, column b " + message):
        of_tables(source(ref, "a", "r.parquet"), source(cand, "b", "c.parquet"), None, None, None)


def test_a_judgement_that_only_one_table_has_counts() -> None:
    """And the ideal is over all judged documents of the table."""
    ref = table({"a": _FOUR}, rel=np.array([-1, 2, 0, 0]), grades=((3, 2), ()))
    cand = table({"b": _FOUR}, rel=np.array([1, -1, -1, -1]))
    first, second = of_tables(source(ref, "a"), source(cand, "b"), None, None, None).lists
    assert (first.grades, first.ideal) == ((1, 2), (3, 2))
    assert (second.grades, second.ideal) == ((0, 0), ())
    unjudged = table({"a": _FOUR})
    assert of_tables(source(unjudged, "a"), source(unjudged, "a"), None, None, None).lists[0].grades is None


def test_labels_are_those_that_the_table_tells() -> None:
    """Source and class of the query, and length by its estimate of tokens."""
    told = {"source": ("x", "x", "y", "y"), "q_class": ("other",) * 4, "tokens": (5, 50, 500, 5)}
    whole = table({"a": _FOUR}, attributes=told)
    first, second = of_tables(source(whole, "a"), source(whole, "a"), None, None, 100).lists
    assert first.labels == {"source": ("x", "x"), "q_class": ("other", "other"), "length": ("short", "medium")}
    assert second.labels["length"] == ("over-length", "short")


def test_a_length_that_a_table_leaves_out_is_no_label() -> None:
    """The query is in no slice of lengths, and the others are."""
    told = table({"a": _FOUR}, attributes={"tokens": (5, None, 500, 5)})
    found = of_tables(source(told, "a"), source(table({"b": _FOUR}), "b"), None, None, 100)
    assert [item.labels for item in found.lists] == [{}, {"length": ("over-length", "short")}]


def test_a_sample_and_a_depth_cut_tables() -> None:
    """The sample is within every larger one; the depth goes by rank_first and needs it."""
    whole = table({"a": [float(n) for n in range(40)]}, 10, rank_first=np.array([1, 2, 3, 4] * 10))
    side = source(whole, "a")
    two = {item.id for item in of_tables(side, side, 2, 3, None).lists}
    five = of_tables(side, side, 5, 3, None).lists
    assert len(two) == 2
    assert two < {item.id for item in five}
    assert {item.doc_ids for item in five} == {("d0", "d1", "d2")}
    bare = source(table({"a": _FOUR}), "a")
    with pytest.raises(ConfigError, match=r"table t\.parquet, column a: --depth needs the column rank_first"):
        of_tables(bare, bare, None, 1, None)


@pytest.mark.parametrize("ref", [True, False])
def test_a_table_with_the_texts_behind_it(ref: bool) -> None:
    """What the collection has no text for is the table's alone; judgements are the collection's, else the table's."""
    whole = table(
        {"s": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]},
        3,
        query_ids=("q1", "q4", "zz"),
        doc_ids=("a", "nowhere", "b", "c", "a", "b"),
        rel=np.array([0, 0, 1, 0, 0, 0]),
    )
    found = of_table(source(whole, "s"), collection(), None, None, 64, ref=ref)
    first, second = found.lists
    assert (first.id, first.doc_ids, first.query) == ("q1", ("a",), "lamp oil")
    assert (first.grades, first.ideal) == ((2,), (2, 1))
    assert (second.id, second.grades, second.ideal) == ("q4", (1, 0), (1,))
    assert second.labels["query_script"] == ("latin", "latin")
    runs, none = (found.ref, found.cand) if ref else (found.cand, found.ref)
    alone = found.only_ref if ref else found.only_cand
    assert runs is not None
    assert (runs["q1"].tolist(), none, alone) == ([[1.0]], None, OneSided(1, ("q1", "nowhere")))
    assert (found.queries_only_ref if ref else found.queries_only_cand) == 1


def test_a_table_of_other_texts_is_refused() -> None:
    """None of its queries or documents is there."""
    side = source(table({"s": _FOUR}, query_ids=("q1", "q2")), "s")
    with pytest.raises(ConfigError, match=r"the collection tiny has the text of none of its pairs"):
        of_table(side, collection(), None, None, None, ref=True)


def test_a_collection_gives_what_the_first_stage_finds() -> None:
    """In its order, to a depth; queries without a candidate are counted, queries without judgements have no grades."""
    texts = collection()
    found = of_collection(texts, ("q1", "q3", "q4"), FirstStage(texts), 2, 64)
    assert [(item.id, len(item.doc_ids)) for item in found.lists] == [("q1", 2), ("q4", 1)]
    assert found.lists[0].doc_ids == ("b", "a")
    assert found.lists[0].grades == (0, 2)
    assert found.lists[1].grades is None
    assert (found.without_candidates, found.of_queries) == (1, 3)
    with pytest.raises(ConfigError, match="dataset tiny: the first stage found nothing"):
        of_collection(texts, ("q3",), FirstStage(texts), 2, 64)


def test_a_column_tells_its_space_window_and_times() -> None:
    """From the table's metadata; where that is silent or odd, nothing is known."""
    told = {"scorers": {"s": {"fingerprint": {"score_space": "probability", "max_length": 256}}}}
    whole = table({"s": _FOUR, "x_rank": _FOUR}, conditions=told, attributes={"ms_s": (1.0, 1.0, 2.0, 2.0)})
    side = source(whole, "s")
    assert (side.space, side.max_length, side.ranks) == (ScoreSpace.PROBABILITY, 256, False)
    assert side.ms_per_pair == {"q0": 1.0, "q1": 2.0}
    other = source(whole, "x_rank")
    assert (other.space, other.max_length, other.ranks, other.ms_per_pair) == (None, None, True, {})
    odd = source(table({"s": _FOUR}, conditions={"scorers": {"s": {"fingerprint": {"score_space": "x"}}}}), "s")
    assert odd.space is None
    assert source(table({"s": _FOUR}, conditions={"scorers": 3}), "s").fingerprint == {}


def test_a_column_that_scores_nothing_is_refused_with_its_file() -> None:
    """As is one that is not there."""
    whole = table({"s": [np.nan] * 4, "t": _FOUR})
    with pytest.raises(ConfigError, match=r"table f\.parquet: column s: no row has a score"):
        source_of("f.parquet", whole, "s")
    with pytest.raises(ConfigError, match=r"table f\.parquet: no column u; scorers of this table are s, t"):
        source_of("f.parquet", whole, "u")
    assert source_of("f.parquet", whole, "t").column == "t"
