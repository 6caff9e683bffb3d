"""The body of a request, and the order in its answer."""

import json
import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from cascade.clients.options import Options
from cascade.clients.ordering import Candidate, Order, SidecarError, kept_order, read_order, request_body
from cascade.text import Text

from .fake_sidecar import answer


def _body(*candidates: Candidate, **options: Any) -> dict[str, Any]:
    read = json.loads(request_body(Options(**options), Text("a query"), candidates))
    assert isinstance(read, dict)
    return read


def test_only_what_was_set_is_sent() -> None:
    """What is not set is left to the sidecar; zero is set."""
    unset = _body(Candidate(Text("one"), "a", {"bm25": 2.5}))
    assert unset == {
        "query": "a query",
        "candidates": [{"text": "one", "id": "a", "scores": {"bm25": 2.5}}],
        "priority": 0,
    }
    options = {"top_n": 2, "deadline_ms": 0.0, "tenant": "acme", "priority": 1}
    assert _body(Candidate(Text("one")), **options) == {
        "query": "a query",
        "candidates": [{"text": "one", "id": None, "scores": {}}],
        **options,
    }


def test_an_id_is_sent_once() -> None:
    """Ids that repeat, are empty or too long are left out; their documents are not."""
    given = ["a", None, "b", "a", "", "x" * 512, "y" * 513]
    sent = _body(*(Candidate(Text("text"), name) for name in given))["candidates"]
    assert [candidate["id"] for candidate in sent] == ["a", None, "b", None, None, "x" * 512, None]


@pytest.mark.parametrize("given", [None, math.nan, math.inf, -math.inf, np.float32("nan")])
def test_a_missing_score_is_left_out(given: Any) -> None:
    """None and numbers that are none are missing scores, beside others that are there."""
    (sent,) = _body(Candidate(Text("text"), scores={"bm25": given, "dense": 0}))["candidates"]
    assert sent["scores"] == {"dense": 0}


@pytest.mark.parametrize("given", [np.float32(0.5), np.float64(0.5), np.array(0.5), Decimal("0.5"), Fraction(1, 2)])
def test_numbers_of_other_libraries_are_numbers(given: Any) -> None:
    """What converts to a float is a score."""
    (sent,) = _body(Candidate(Text("text"), scores={"bm25": given}))["candidates"]
    assert sent["scores"] == {"bm25": 0.5}


@pytest.mark.parametrize("given", ["0.5", "hidden words", True, [0.5], np.array([0.5, 0.6]), 10**400])
def test_what_is_no_number_is_told_by_its_place(given: Any) -> None:
    """A metadata key that holds no numbers is a mistake, told without what it holds."""
    with pytest.raises(SidecarError) as raised:
        _body(Candidate(Text("text")), Candidate(Text("text"), scores={"bm25": given}))
    assert str(raised.value) == "candidates.1.scores.bm25: is not a number"


def test_text_is_sent_as_it_is_in_utf8() -> None:
    """Text is not escaped, and half of a surrogate pair does not cost the order."""
    sent = request_body(Options(), Text("대나무"), [Candidate(Text('"🐼"\n')), Candidate(Text("half \ud83d"))])
    assert "대나무".encode() in sent
    assert [candidate["text"] for candidate in json.loads(sent)["candidates"]] == ['"🐼"\n', "half ?"]


def test_an_order_is_read_with_what_was_told() -> None:
    """Places keep the answer's order and scores."""
    order = read_order(json.dumps(answer((1, 0.9), (0, 0.4), degraded=["stage_timeout"])).encode(), 2, None)
    assert [(place.index, place.score, place.stage) for place in order.places] == [(1, 0.9, "large"), (0, 0.4, "large")]
    assert order.told(order.places[0]) == {
        "stage": "large",
        "score": 0.9,
        "decision_id": "d-1",
        "release": "fake",
        "degraded": ["stage_timeout"],
    }


_NOT_OURS = [
    answer((0, 0.5), (1, float("nan"))),
    answer((0, 0.5), (1, float("inf"))),
    answer((0, 0.5), (True, 0.4)),
    answer((0, 0.5), (1, 0.4), decision_id=None),
    answer((0, 0.5), (1, 0.4), degraded=["hidden words"]),
    {"results": None},
    {"detail": "hidden"},
    ["hidden"],
    None,
]
_NO_ORDER = [
    answer(),
    answer((0, 0.5)),
    answer((0, 0.5), (0, 0.4)),
    answer((0, 0.5), (2, 0.4)),
    answer((0, 0.5), (-1, 0.4)),
    answer((0, 0.5), (1, 0.4), (1, 0.3)),
]


@pytest.mark.parametrize("given", [json.dumps(given).encode() for given in _NOT_OURS] + [b"", b"<html>", b"\xff"])
def test_an_answer_of_something_else_is_refused(given: bytes) -> None:
    """What is not the sidecar's answer is no order, and is not repeated."""
    with pytest.raises(SidecarError, match=r"^the answer is not a sidecar's$") as raised:
        read_order(given, 2, None)
    assert raised.value.__cause__ is None
    assert raised.value.__context__ is None


@pytest.mark.parametrize("given", _NO_ORDER)
def test_an_order_that_loses_or_repeats_a_document_is_refused(given: dict[str, Any]) -> None:
    """Every candidate once, or it is no order."""
    with pytest.raises(SidecarError, match=r"^the answer does not place 2 of 2 candidates, each once$"):
        read_order(json.dumps(given).encode(), 2, None)


@pytest.mark.parametrize(("top_n", "count"), [(1, 2), (2, 2), (5, 2)])
def test_as_many_are_placed_as_were_asked_for(top_n: int, count: int) -> None:
    """With ``top_n`` an order has so many places, or all."""
    places = [(1, 0.9), (0, 0.4)]
    wanted = min(top_n, count)
    order = read_order(json.dumps(answer(*places[:wanted])).encode(), count, top_n)
    assert [place.index for place in order.places] == [1, 0][:wanted]
    with pytest.raises(SidecarError):
        read_order(json.dumps(answer(*places[: wanted - 1])).encode(), count, top_n)


def test_an_order_that_is_kept_says_why() -> None:
    """The order given stands, cut to ``top_n``, without scores."""
    order = kept_order(3, 2, SidecarError("no answer: ConnectError"))
    assert [place.index for place in order.places] == [0, 1]
    assert order.told(order.places[1]) == {
        "stage": "retrieval",
        "score": None,
        "decision_id": None,
        "release": None,
        "degraded": ["no_answer"],
        "error": "no answer: ConnectError",
    }
    assert len(kept_order(3, None, SidecarError("why")).places) == 3


def test_text_is_in_no_repr() -> None:
    """Candidates can be shown."""
    assert "hidden" not in repr(Candidate(Text("hidden"))) + repr(Order())
