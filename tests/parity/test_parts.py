"""Contrasts, slices, tokens, costs and jitter by themselves."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from cascade.parity.batches import Situation, measure_jitter
from cascade.parity.contrast import contrast_lists, contrasts, long_text
from cascade.parity.contrast_texts import CASES
from cascade.parity.costs import milliseconds, resident_bytes, speed
from cascade.parity.lists import FloatArray
from cascade.parity.slices import labels_of, length_label, values_of
from cascade.parity.token_ids import compare_counts, compare_ids
from cascade.testing.clock import run_virtual
from cascade.tokens import estimate_tokens
from tests.parity.arrange import candidate_list, hashed


def test_built_in_texts_cover_scripts_and_kinds() -> None:
    """Several scripts, digits, negation, an entity, a short and an over-length pair; all texts differ."""
    lists = contrast_lists(64)
    kinds = {item.labels["kind"][0] for item in lists}
    assert kinds >= {"latin", "japanese", "korean", "arabic", "han", "cyrillic", "digits", "negation", "short"}
    assert {label for item in lists for label in item.labels["query_script"]} >= {
        "latin",
        "japanese",
        "hangul",
        "arabic",
        "han",
        "cyrillic",
    }
    texts = [text for case in CASES for text in (case.query, case.good, case.bad)]
    assert len(set(texts)) == len(texts)
    for item in lists:
        assert item.documents is not None
        assert len(set(item.documents)) == len(item.documents) == len(item.doc_ids)


@pytest.mark.parametrize("window", [64, 512, 2048])
def test_over_length_texts_follow_the_window(window: int) -> None:
    """The answer stands at the head, nowhere, in the middle and beyond the window's end."""
    item = contrast_lists(window)[-1]
    assert item.documents is not None
    assert set(item.labels["length"]) == {"over-length"}
    answer = "every two months"
    places = [text.find(answer) for text in item.documents]
    assert 0 <= places[0] < 100
    assert places[1] == -1
    assert 0.4 * window < estimate_tokens(item.documents[2][: places[2]]) < 0.6 * window + 100
    assert estimate_tokens(item.documents[3][: places[3]]) > 1.5 * window
    assert estimate_tokens(long_text("word ", 100)) >= 100


def test_a_contrast_is_lost_where_the_reference_alone_has_it() -> None:
    """Not where both have it wrong, and not where the candidate did not score it."""
    lists = contrast_lists(64)[:4]
    right, wrong, none = (np.array([[a, b, 0, 0, 0, 0]]) for a, b in ((2.0, 1.0), (1.0, 2.0), (np.nan, 1.0)))
    names = [item.id for item in lists]
    ref = dict(zip(names, (right, right, wrong, right), strict=True))
    cand = dict(zip(names, (right, wrong, wrong, none), strict=True))
    found = contrasts(lists, ref, cand)
    assert [item.lost for item in found] == [False, True, False, False]
    assert (found[1].ref_margin, found[1].cand_margin, found[3].cand_margin) == (1.0, -1.0, None)
    assert found[0].name == "lighthouse"
    assert [item.lost for item in contrasts(lists, None, cand)] == [False] * 4


def test_labels_tell_scripts_digits_and_length() -> None:
    """A digit in the query concerns every pair; other scripts' digits are digits too."""
    found = labels_of("why", ["a lamp", "ランプは3つ", "word " * 100], 64)
    assert found["document_script"] == ("latin", "japanese", "latin")
    assert found["digits"] == ("no", "yes", "no")
    assert found["length"] == ("short", "short", "over-length")
    assert labels_of("room ٣", ["a"], None)["digits"] == ("yes",)
    assert (length_label(25, None), length_label(1000, None)) == ("medium", "medium")


def test_an_attribute_with_one_value_is_no_slice() -> None:
    """The rest comes sorted."""
    lists = [candidate_list("a", ["one lamp", "word " * 100]), candidate_list("b", ["two lamps"])]
    assert list(values_of(lists)) == [("length", "over-length"), ("length", "short")]


def test_token_ids_are_compared_pair_by_pair() -> None:
    """Blank documents are not read; a sequence that ends sooner differs where it ends."""
    lists = [candidate_list("a", ["one", " ", "three"])]
    found = compare_ids(lists, lambda query, text: (1, 2, 3), lambda query, text: (1, 2, 3)[: len(text) - 1])
    assert (found.compared, found.differing, found.ref, found.cand) == (2, 1, 6, 5)
    assert found.first == ("a", "d0", 2)
    other = compare_ids(lists, lambda query, text: (1, 2), lambda query, text: (1, 9))
    assert (other.differing, other.first) == (2, ("a", "d0", 1))


def test_token_counts_are_compared_call_by_call() -> None:
    """Only of calls that both counted."""
    found = compare_counts({"a": 5, "b": 7, "c": 1}, {"a": 5, "b": 8})
    assert found is not None
    assert (found.kind, found.compared, found.differing, found.ref, found.cand) == ("counts", 2, 1, 12, 13)
    assert found.first == ("b", None, None)
    assert compare_counts({"a": 5}, {}) is None
    same = compare_counts({"a": 5}, {"a": 5})
    assert same is not None
    assert (same.differing, same.first) == (0, None)


def test_time_is_told_by_call_and_speed_by_query() -> None:
    """Calls that took no measurable time have no ratio."""
    taken = milliseconds({"a": 1.0, "b": 3.0})
    assert taken is not None
    assert (taken.mean, taken.p50, taken.calls) == (2.0, 2.0, 2)
    assert taken.p95 == pytest.approx(2.9)
    assert milliseconds({}) is None
    found = speed({"a": 4.0, "b": 2.0, "c": 1.0}, {"a": 2.0, "b": 2.0, "c": 0.0})
    assert found is not None
    assert (found.median, found.low, found.high, found.queries) == (1.5, 1.25, 1.75, 2)
    assert speed({"a": 1.0}, {"b": 1.0}) is None


def test_memory_is_read_where_the_system_tells_it(tmp_path: Path) -> None:
    """In pages; a system without that file, or with another one, tells nothing."""
    statm = tmp_path / "statm"
    statm.write_text("100 7 3 1 0 2 0\n")
    found = resident_bytes(statm)
    assert found is not None
    assert found % 7 == 0
    assert found >= 7 * 1024
    statm.write_text("x")
    assert resident_bytes(statm) is None
    assert resident_bytes(tmp_path / "none") is None


def test_a_pair_that_is_left_out_has_no_jitter() -> None:
    """A side that leaves all out has nothing to be judged by."""

    async def nothing(query: str, texts: Sequence[str]) -> FloatArray:
        return np.full(len(texts), np.nan)

    found = run_virtual(measure_jitter(nothing, 64))
    assert (found.moved, found.repeat_sd, found.greatest, found.is_deterministic) == ({}, 0.0, None, True)


def test_e3_each_situation_is_measured_against_the_pair_alone() -> None:
    """A score that grows with the number of mates moves in company and not over repeats or places."""
    calls = []

    async def company(query: str, texts: Sequence[str]) -> FloatArray:
        calls.append(len(texts))
        return np.array([hashed(query, text) + 0.25 * (len(texts) - 1) for text in texts])

    found = run_virtual(measure_jitter(company, 64))
    assert {situation: moved.greatest for situation, moved in found.moved.items()} == pytest.approx(
        {
            Situation.REPEATS: 0.0,
            Situation.SHORT_MATES: 0.75,
            Situation.LONG_MATES: 0.75,
            Situation.POSITION: 0.0,
            Situation.MIXED: 0.75,
        }
    )
    assert (len(calls), sum(calls)) == (27, 12 + 12 + 48)
    assert found.greatest == pytest.approx(0.75)
