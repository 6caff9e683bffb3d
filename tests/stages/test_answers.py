"""Checks of an answer: whole and finite, or not believed."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cascade.stages.answers import AnswerFault, InvalidAnswer, items_with_scores, parse_json, scores_by_index

FINITE = st.floats(allow_nan=False, allow_infinity=False).filter(lambda score: score != -1e6)
WHOLE = [(0, 1.5), (1, -2.0), (2, 0)]


def fault_of(items: list[tuple[Any, Any]], count: int) -> AnswerFault:
    """Return why an answer is not believed."""
    with pytest.raises(InvalidAnswer) as caught:
        scores_by_index(items, count)
    return caught.value.fault


@given(scores=st.lists(FINITE, max_size=30), data=st.data())
def test_d4_scores_are_placed_by_index_in_whatever_order_they_come(scores: list[float], data: st.DataObject) -> None:
    """Any order of the same items gives the same scores in index order."""
    shuffled = data.draw(st.permutations(list(enumerate(scores))))
    assert scores_by_index(shuffled, len(scores)) == scores


def test_a_whole_number_is_a_score() -> None:
    """JSON writes 1.0 as 1 now and then; zero is a legal score."""
    scores = scores_by_index(WHOLE, 3)
    assert scores == [1.5, -2.0, 0.0]
    assert all(type(score) is float for score in scores)


@pytest.mark.parametrize("index", [-1, 3, 10**12, "1", 1.0, True, False, None, [1], {}])
def test_d5_an_index_that_is_no_position_is_refused(index: object) -> None:
    """Negative, too large, or not an integer: such an index must never place a score."""
    assert fault_of([(0, 1.0), (index, 1.0), (2, 1.0)], 3) is AnswerFault.BAD_INDEX


def test_d5_an_index_given_twice_is_refused() -> None:
    """Two scores for one document are no answer, even where they agree and even where one is zero."""
    assert fault_of([(0, 0.0), (0, 0.0), (1, 1.0)], 2) is AnswerFault.DUPLICATE_INDEX


@given(count=st.integers(1, 20), data=st.data())
def test_d5_a_missing_index_is_refused(count: int, data: st.DataObject) -> None:
    """An answer that leaves documents out counts for none of them."""
    present = data.draw(st.sets(st.integers(0, count - 1), max_size=count - 1))
    assert fault_of([(index, 1.0) for index in present], count) is AnswerFault.WRONG_COUNT


def test_d6_no_scores_for_documents_sent_is_refused() -> None:
    """An empty list is not an answer where documents were sent."""
    assert fault_of([], 4) is AnswerFault.WRONG_COUNT


@pytest.mark.parametrize(
    "score", [math.nan, math.inf, -math.inf, None, "0.5", True, False, [0.5], {}, -1e6, -1_000_000]
)
def test_d7_a_score_that_is_not_a_finite_number_is_refused(score: object) -> None:
    """NaN, infinities, null, strings, booleans and the mark for "not scored" never take part in an order."""
    assert fault_of([(0, 1.0), (1, score)], 2) is AnswerFault.NOT_A_NUMBER


@given(scores=st.lists(FINITE, min_size=1, max_size=8), extra=st.integers(0, 30) | st.none() | st.booleans())
def test_d5_one_item_too_many_is_never_believed(scores: list[float], extra: int | None) -> None:
    """Whatever is appended to a whole answer breaks it."""
    with pytest.raises(InvalidAnswer):
        scores_by_index([*enumerate(scores), (extra, 1.0)], len(scores))


@pytest.mark.parametrize(
    "body", [b"", b"<html>", b'{"a":', b"[NaN]", b"[Infinity]", b"[1e999]", b"\xff\xfe", b'"\\ud800"', b"[" * 5000]
)
def test_d7_what_is_not_json_is_refused(body: bytes) -> None:
    """Numbers that JSON does not have, broken text and endless nesting are not JSON."""
    with pytest.raises(InvalidAnswer) as caught:
        parse_json(body)
    assert caught.value.fault is AnswerFault.NOT_JSON


def test_g1_an_invalid_answer_is_not_chained_to_the_parser_that_holds_the_body() -> None:
    """The parser's error carries the whole body, so it is not kept as context."""
    with pytest.raises(InvalidAnswer) as caught:
        parse_json(b'["canary"')
    assert caught.value.__context__ is None
    assert str(caught.value) == "not_json"


def test_json_is_returned_as_it_is() -> None:
    """A body that is JSON is parsed."""
    assert parse_json(b'[{"index":0,"score":0.5}]') == [{"index": 0, "score": 0.5}]


def test_items_are_read_by_key() -> None:
    """Index and score are taken from each object, whatever else it holds and in whatever order."""
    items = [{"score": 2.0, "index": 1, "text": "t"}, {"index": 0, "score": 1.0}]
    assert list(items_with_scores(items, "score")) == [(1, 2.0), (0, 1.0)]


def test_d6_an_error_body_with_status_200_is_refused_as_such() -> None:
    """An error in place of a list is named, so that it is not taken for a broken format."""
    with pytest.raises(InvalidAnswer) as caught:
        list(items_with_scores({"error": "canary"}, "score"))
    assert caught.value.fault is AnswerFault.ERROR_BODY


@pytest.mark.parametrize(
    "items", [None, {}, "[]", 7, [1], [None], [[0, 1.0]], [{"index": 0}], [{"score": 1.0}], [{"index": 0, "s": 1.0}]]
)
def test_d5_items_of_another_shape_are_refused(items: object) -> None:
    """Only a list of objects with both keys is an answer."""
    with pytest.raises(InvalidAnswer) as caught:
        list(items_with_scores(items, "score"))
    assert caught.value.fault is AnswerFault.WRONG_SHAPE
