"""Faults: what an answer other than 200 means, whatever a server writes into it."""

from __future__ import annotations

import re
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cascade.stages.answers import InvalidAnswer
from cascade.stages.base import Observed
from cascade.stages.rerank_api import SHAPES, ApiWire
from cascade.stages.tei import TeiWire
from cascade.stages.upstream import Reply
from cascade.stages.vllm import VllmWire
from cascade.stages.wire import Fault, FaultKind, Wire, common_fault, error_text, number_after, object_of
from cascade.testing.clock import run_virtual

NUMBERS = re.compile(r"limit (\d+)")
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=12,
)
PHRASES = st.sampled_from(
    [
        "must have less than 512 tokens. Given: 534",
        "batch size 40 > maximum allowed batch size 32",
        "maximum context length is 512 tokens. However, your prompt contains at least 513 input tokens",
        "input (2006 tokens) is larger than the max context size (512 tokens). skipping",
        "input (5006 tokens) is too large to process. increase the physical batch size (current batch size: 2048)",
        "Out of range float values are not JSON compliant",
        "The model `m` does not exist.",
        "must have less than " + "9" * 5000 + " tokens",
        "maximum context length is " + "9" * 5000,
        "input (" + "9" * 5000 + " tokens) is too large to process (current batch size: 512)",
    ]
)
MESSAGES = st.text(max_size=40) | PHRASES
BODIES = (
    st.binary(max_size=60)
    | JSON.map(orjson.dumps)
    | MESSAGES.map(lambda message: orjson.dumps({"error": message, "error_type": "Validation"}))
    | MESSAGES.map(lambda message: orjson.dumps({"error": {"message": message}}))
    | MESSAGES.map(lambda message: orjson.dumps({"object": "error", "message": message}))
)
REPLIES = st.builds(Reply, st.integers(100, 599), st.just({}), BODIES)
WIRES: st.SearchStrategy[Wire] = st.one_of(
    st.builds(TeiWire, raw_scores=st.booleans()),
    st.builds(VllmWire, st.just("m"), raw_scores=st.booleans()),
    st.builds(ApiWire, st.sampled_from(list(SHAPES.values())), st.just("m"), raw_scores=st.booleans()),
)


@given(wire=WIRES, reply=REPLIES)
def test_any_answer_has_a_kind_and_a_code_that_holds_none_of_it(wire: Wire, reply: Reply) -> None:
    """No status and no body makes the classification itself fail, and stated numbers are usable."""
    fault = wire.fault(reply)
    assert fault.kind in FaultKind
    assert re.fullmatch(r"[a-z][a-z0-9_]*", fault.code)
    for number in (fault.limit, fault.given):
        assert number is None or 0 <= number < 10**9


@given(wire=WIRES, body=BODIES, count=st.integers(0, 5))
def test_any_body_with_status_200_is_scores_or_an_invalid_answer(wire: Wire, body: bytes, count: int) -> None:
    """Nothing else comes out of reading an answer."""
    try:
        answer = wire.answer(Reply(200, {}, body), count)
    except InvalidAnswer:
        return
    assert len(answer.scores) == count


@given(wire=WIRES, reply=REPLIES | st.builds(Reply, st.just(200), st.just({}), BODIES))
def test_any_answer_to_discovery_is_limits_or_a_fault(wire: Wire, reply: Reply) -> None:
    """A server that says odd things of itself is believed only where a limit is a positive integer."""

    async def get(path: str) -> Reply:
        return reply

    found = run_virtual(ask(wire, get))
    if isinstance(found, Observed):
        for limit in (found.max_length, found.max_texts, found.max_in_flight_texts):
            assert limit is None or (type(limit) is int and limit > 0)


async def ask(wire: Wire, get: Any) -> Observed | Fault:
    """Discover through a wire."""
    return await wire.discover(get)


@pytest.mark.parametrize(
    ("status", "kind", "code"),
    [
        (201, FaultKind.BROKEN, "status_without_scores"),
        (204, FaultKind.BROKEN, "status_without_scores"),
        (307, FaultKind.REFUSED, "status_307"),
        (400, FaultKind.REFUSED, "status_400"),
        (401, FaultKind.UNUSABLE, "unauthorized"),
        (402, FaultKind.REFUSED, "status_402"),
        (403, FaultKind.REFUSED, "forbidden"),
        (404, FaultKind.NO_ROUTE, "no_route"),
        (405, FaultKind.NO_ROUTE, "no_route"),
        (415, FaultKind.REFUSED, "status_415"),
        (429, FaultKind.OVERLOADED, "status_429"),
        (500, FaultKind.BROKEN, "status_500"),
        (501, FaultKind.REFUSED, "status_501"),
        (502, FaultKind.UNREACHABLE, "status_502"),
        (503, FaultKind.OVERLOADED, "status_503"),
        (504, FaultKind.TIMEOUT, "status_504"),
        (599, FaultKind.BROKEN, "status_599"),
    ],
)
def test_b5_each_status_means_one_thing(status: int, kind: FaultKind, code: str) -> None:
    """What a bare status means does not depend on the server."""
    assert common_fault(status) == Fault(kind, code)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"error": "text"}, "text"),
        ({"error": {"message": "text"}}, "text"),
        ({"object": "error", "message": "text"}, "text"),
        ({"error": {"code": 1}}, ""),
        ({"error": 7}, ""),
        ({"message": ["text"]}, ""),
        ({}, ""),
    ],
)
def test_an_error_message_is_found_in_each_shape(body: dict[str, Any], message: str) -> None:
    """A bare string, nested and flat are the three shapes in use."""
    assert error_text(body) == message


@pytest.mark.parametrize("body", [b"", b"plain", b"[1]", b'"x"', b"null"])
def test_a_body_that_is_no_object_reads_as_an_empty_one(body: bytes) -> None:
    """Plain text and arrays hold no message."""
    assert object_of(Reply(500, {}, body)) == {}


@pytest.mark.parametrize(
    ("text", "number"),
    [("limit 512!", 512), ("limit 0", 0), ("limit x", None), ("", None), ("limit " + "9" * 10, None)],
)
def test_a_number_is_read_after_its_pattern(text: str, number: int | None) -> None:
    """What has too many digits to be a limit is none: reading it must not fail either."""
    assert number_after(NUMBERS, text) == number
