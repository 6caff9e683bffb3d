"""Terms, BM25, and fusing it with another channel."""

from __future__ import annotations

from pathlib import Path

import bm25s
import numpy as np
import pytest
import Stemmer
from hypothesis import given
from hypothesis import strategies as st

from cascade.errors import ConfigError
from cascade.replay.collection import Collection, load_collection
from cascade.replay.first_stage import FirstStage, best_positions, fuse
from cascade.replay.fusion import fused_order
from cascade.replay.words import term_cutter

_OWN = Path(__file__).parents[2] / "evals" / "collections" / "lighthouse"


def _first_stage(**documents: str) -> FirstStage:
    return FirstStage(Collection("x", documents, {}, {}))


def _found(stage: FirstStage, query: str) -> list[str]:
    return [document for document, _ in stage.search(query, 50)]


def test_bm25_finds_shared_words_and_leaves_out_the_rest() -> None:
    """Results share a stem with the query, best first, without documents that score zero."""
    stage = _first_stage(a="boats float on water", b="bread", c="a floating boat, a boat", d="tides")
    found = stage.search("floating boats", 50)
    assert {document for document, _ in found} == {"a", "c"}
    assert found[0][1] >= found[1][1] > 0


def test_a_score_is_lucenes_bm25() -> None:
    """One term in one of three documents of length two: idf ln(1 + 2.5/1.5), k1 1.5 and b 0.75."""
    ((document, score),) = _first_stage(a="lamp oil", b="bread flour", c="tide wind").search("oil", 50)
    assert document == "a"
    assert score == pytest.approx(np.log(1 + 2.5 / 1.5) * 1 / (1 + 1.5))


def test_equal_scores_keep_the_collections_order_also_at_the_cut() -> None:
    """Which of two equal documents is cut does not depend on a sort's whims."""
    stage = _first_stage(**{f"d{number}": "a lamp" for number in range(9)}, x="a lamp lamp")
    assert [document for document, _ in stage.search("lamp", 4)] == ["x", "d0", "d1", "d2"]


def test_english_terms_are_those_of_bm25s() -> None:
    """Where words are spaced, stop words and stems are the library's, text for text."""
    texts = list(load_collection(_OWN).documents.values())
    stemmer = Stemmer.Stemmer("english")
    wanted = bm25s.tokenize(texts, stopwords="en", stemmer=stemmer, return_ids=False, show_progress=False)
    cut = term_cutter()
    assert [cut(text) for text in texts] == wanted


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("The Boats are floating", ["boat", "float"]),
        ("", []),
        ("a x !", []),
        ("灯台の明かり", ["灯台", "台の", "の明", "明か", "かり"]),
        ("灯", ["灯"]),
        ("第3回 iPhone15のケース", ["第", "3", "回", "iphone15", "のケ", "ケー", "ース"]),
        ("ｶﾞｽ Ｗｉ-Ｆｉ", ["ガス", "wi", "fi"]),
        ("人々・々", ["人々", "々"]),
        ("บ้าน", ["บ้", "้า", "าน"]),
        ("등대는 밝다", ["등대는", "등대", "대는", "밝다"]),
        ("빛 LED 3개", ["빛", "led", "3", "개"]),
        ("Straße der Boote", ["straße", "der", "boot"]),
        ("Ünïcode x", ["ünïcode"]),
    ],
)
def test_terms_follow_the_script_of_each_run(text: str, terms: list[str]) -> None:
    """Words where they are spaced, bigrams where they are not, both in Hangul, side by side in one text."""
    assert term_cutter()(text) == terms


@given(st.text(max_size=60))
def test_any_text_can_be_cut(text: str) -> None:
    """No text breaks it, no term is empty or has white space in it, and cutting is repeatable."""
    cut = term_cutter()
    terms = cut(text)
    assert terms == cut(text)
    assert all(term and not any(map(str.isspace, term)) for term in terms)


def test_words_that_are_not_spaced_are_found() -> None:
    """A Japanese, a Thai and a Korean query each find their document and no other."""
    stage = _first_stage(
        ja="東京駅の灯台を訪れた",
        zh="面包和面粉",
        th="ประภาคารสว่าง",
        ko="등대가 있는 항구",
        en="bread and tides",
    )
    assert _found(stage, "灯台はどこ") == ["ja"]
    assert _found(stage, "面粉") == ["zh"]
    assert _found(stage, "ประภาคาร") == ["th"]
    assert _found(stage, "등대를") == ["ko"]


def test_nothing_to_search_finds_nothing() -> None:
    """A query without a known term, and a collection without one, give no candidate."""
    assert _found(_first_stage(a="boats"), "the") == []
    assert _found(_first_stage(a="boats"), "zzz") == []
    assert _found(_first_stage(a="!", b=""), "boats") == []


@pytest.mark.parametrize("library", ["bm25s", "Stemmer"])
def test_missing_library_is_told(monkeypatch: pytest.MonkeyPatch, library: str) -> None:
    """What to install is said where the extra is not there."""
    monkeypatch.setitem(__import__("sys").modules, library, None)
    with pytest.raises(ConfigError, match=r"^BM25 needs cascade-rerank\[fit\]; in a clone: "):
        _first_stage(a="boats")


@given(st.lists(st.sampled_from([-1.0, 0.0, 0.5, 2.0])), st.integers(1, 6))
def test_best_positions_are_those_of_a_stable_sort(scores: list[float], most: int) -> None:
    """The cut agrees with sorting everything, for any ties."""
    array = np.array(scores, dtype=np.float32)
    wanted = [position for position in np.argsort(-array, kind="stable") if array[position] > 0]
    assert best_positions(array, most, above=0).tolist() == wanted[:most]


def test_fusing_one_channel_keeps_its_order() -> None:
    """BM25 alone is the first stage as it is, cut to depth."""
    found = fuse({"bm25": [("b", 3.0), ("a", 2.0), ("c", 2.0)]}, 2)
    assert found.documents == ("b", "a")
    assert found.channels["bm25"].tolist() == [3.0, 2.0]


def test_fusing_two_channels_puts_what_both_found_first() -> None:
    """A document of both lists beats the head of one, and one that a channel did not find has no score from it."""
    found = fuse({"bm25": [("b", 9.0), ("a", 2.0)], "dense": [("c", 0.9), ("a", 0.8)]}, 10)
    assert found.documents == ("a", "b", "c")
    assert np.array_equal(found.channels["bm25"], [2.0, 9.0, np.nan], equal_nan=True)
    assert np.array_equal(found.channels["dense"], [0.8, np.nan, 0.9], equal_nan=True)


def test_fusing_nothing_is_no_candidate() -> None:
    """A query that no channel answers has an empty list, of every channel."""
    found = fuse({"bm25": [], "dense": []}, 10)
    assert found.documents == ()
    assert {name: len(values) for name, values in found.channels.items()} == {"bm25": 0, "dense": 0}


def test_equal_scores_of_a_channel_share_a_rank() -> None:
    """Where a document stands in the arrays decides nothing but ties of the sum."""
    one = np.array([1.0, 1.0, np.nan])
    other = np.array([0.1, 0.2, 0.9])
    assert fused_order([one, other]).tolist() == [1, 0, 2]
    assert fused_order([one]).tolist() == [0, 1, 2]


@given(st.lists(st.tuples(st.integers(0, 3), st.one_of(st.none(), st.integers(0, 3))), min_size=1, max_size=12))
def test_fusion_is_the_formula(rows: list[tuple[int, int | None]]) -> None:
    """The order is by the sum of 1 / (60 + rank), where rank counts the better scores of a channel."""
    channels = [np.array([np.nan if v is None else float(v) for v in column]) for column in zip(*rows, strict=True)]
    total = [
        sum(1 / (60 + 1 + int((channel > channel[row]).sum())) for channel in channels if not np.isnan(channel[row]))
        for row in range(len(rows))
    ]
    assert fused_order(channels).tolist() == sorted(range(len(rows)), key=lambda row: (-total[row], row))
