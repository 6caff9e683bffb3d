"""Requests that are made to cost much: refused early, for little memory and in bounded time."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any, Final

import httpx
import orjson
import pytest

from cascade.errors import RequestError
from cascade.server.app import public_app
from cascade.server.dialects.base import DialectFormat
from cascade.server.dialects.infinity import InfinityFormat
from cascade.server.dialects.native import NativeFormat
from cascade.server.dialects.tei import TeiFormat
from cascade.server.dialects.vllm import VllmFormat
from cascade.server.http import as_json
from cascade.testing.clock import run_virtual
from tests.server.asgi import post_slowly
from tests.server.sidecar import BODIES, ROUTES, release_of, sidecar

_ALL: Final = [(dialect, path) for dialect, paths in ROUTES.items() for path in paths]
_MANY: Final = 400_000
_FEW_BYTES: Final = 400_000
"""What a refusal may allocate: a hundredth of what a fault for each entry takes."""


def _native(**candidate: Any) -> dict[str, Any]:
    return {"query": "q", "candidates": [{"text": "a", **candidate}]}


_HOSTILE: Final[list[tuple[str, DialectFormat, Callable[[], Any], str]]] = [
    (
        "unknown keys",
        NativeFormat(),
        lambda: {**_native(), **{f"key {n}": 0 for n in range(_MANY)}},
        "(unnamed): Extra inputs are not permitted",
    ),
    (
        "unknown keys of a candidate",
        NativeFormat(),
        lambda: _native(**{f"k{n}": 0 for n in range(_MANY)}),
        "candidates.0.k0: Extra inputs are not permitted",
    ),
    (
        "bad channels",
        NativeFormat(),
        lambda: _native(scores={f"c{n}": "x" for n in range(_MANY)}),
        "candidates.0.scores: at most 16 channels are accepted",
    ),
    (
        "bad candidates",
        NativeFormat(),
        lambda: {"query": "q", "candidates": [{}] * _MANY},
        "candidates.0.text: Field required",
    ),
    (
        "channels beyond the documents",
        TeiFormat(),
        lambda: {"query": "q", "texts": ["a"], "first_stage": {"c": [None] * (_MANY + 1)}},
        "first_stage.c: must have one number or null for every document",
    ),
    (
        "bad channels",
        InfinityFormat(),
        lambda: {"query": "q", "documents": ["a"], "first_stage": {f"key {n}": 0 for n in range(_MANY)}},
        "first_stage: at most 16 channels are accepted",
    ),
    (
        "bad scores",
        VllmFormat("1"),
        lambda: {"query": "q", "documents": ["a"], "first_stage": {"c": ["x"] * _MANY}},
        "first_stage.c.0: Input should be a valid number",
    ),
    (
        "channels that differ between candidates",
        NativeFormat(),
        lambda: {"query": "q", "candidates": [{"text": "a", "scores": {f"c{n}": 1}} for n in range(_MANY)]},
        "candidates: at most 16 channels are accepted",
    ),
    ("bad texts", TeiFormat(), lambda: {"query": "q", "texts": [7] * _MANY}, "texts.0: Input should be a valid string"),
    (
        "bad documents",
        VllmFormat("1"),
        lambda: {"query": "q", "documents": [[]] * _MANY},
        "documents.0: Input should be a valid string",
    ),
    (
        "bad documents",
        InfinityFormat(),
        lambda: {"query": "q", "documents": [None] * _MANY},
        "documents.0: Input should be a valid string",
    ),
]


@pytest.mark.parametrize(
    ("fmt", "made", "message"), [pytest.param(fmt, *rest, id=f"{fmt.name} {name}") for name, fmt, *rest in _HOSTILE]
)
def test_a_hostile_body_is_refused_at_its_first_fault(
    fmt: DialectFormat, made: Callable[[], Any], message: str
) -> None:
    """Of 400,000 faults the first is told, and no list of the others is made."""
    body = made()
    tracemalloc.start()
    try:
        with pytest.raises(RequestError) as refused:
            fmt.parse(body, {}, _MANY)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert str(refused.value) == message
    assert peak < _FEW_BYTES


def test_g1_an_error_of_json_does_not_hold_the_body() -> None:
    """The parser's error has the whole text, so it is not the context of ours."""
    with pytest.raises(RequestError) as refused:
        as_json(b'{"query": "canary')
    assert refused.value.__context__ is None
    assert refused.value.__cause__ is None


def test_c1_a_body_that_does_not_come_is_408_in_the_dialect_s_shape() -> None:
    """After the release's time, at least a second, the caller is told, and the connection closed."""

    async def ask(path: str, begun: bytes) -> tuple[httpx.Response, float]:
        served = sidecar()
        response = await post_slowly(public_app(served.service), path, begun)
        counted = await served.metrics()
        assert sum(value for name, value in counted.items() if 'status="408"' in name) == 1
        assert counted["cascade_in_flight"] == 0
        return response, served.service.clock()

    for dialect, path in _ALL:
        begun = orjson.dumps(BODIES[dialect]("q", ["a"]))[:-1]
        response, seconds = run_virtual(ask(path, begun))
        assert response.status_code == 408
        assert seconds == pytest.approx(1.0)
        assert response.headers["connection"] == "close"
        assert "body: had not arrived after 1 seconds" in response.text
        assert response.headers["content-type"].startswith("text/plain" if dialect == "tei" else "application/json")


@pytest.mark.parametrize(
    ("headers", "body_seconds", "total_ms", "seconds"),
    [
        ({}, 10.0, 90.0, 1.0),
        ({}, 10.0, 3000.0, 3.0),
        ({}, 10.0, 60_000.0, 10.0),
        ({}, 0.5, 3000.0, 0.5),
        ({"x-request-timeout-ms": "2000"}, 10.0, 90.0, 2.0),
        ({"x-request-timeout-ms": "0"}, 10.0, 90.0, 1.0),
        ({"x-request-timeout-ms": "canary"}, 10.0, 4000.0, 4.0),
        ({"x-envoy-expected-rq-timeout-ms": "600000"}, 10.0, 90.0, 10.0),
    ],
)
def test_a_body_has_the_time_of_the_deadline(
    headers: dict[str, str], body_seconds: float, total_ms: float, seconds: float
) -> None:
    """The header's, else the release's, but at least a second, and at most the setting."""
    budgets = {"total_ms": total_ms, "small_ms": 40.0, "large_ms": 40.0, "reserve_ms": 1.0}

    async def ask() -> float:
        served = sidecar(release=release_of(budgets=budgets), body_seconds=body_seconds)
        response = await post_slowly(public_app(served.service), "/v1/rerank", b'{"query":', headers)
        assert response.status_code == 408
        return served.service.clock()

    assert run_virtual(ask()) == pytest.approx(seconds)


def test_a_body_that_comes_late_but_whole_is_answered() -> None:
    """A body that ends after a short deadline gets first-stage order: whoever waits is served."""

    async def ask() -> httpx.Response:
        served = sidecar()
        body = orjson.dumps(BODIES["vllm"]("b", ["a", "b"]))
        headers = {"x-request-timeout-ms": "50"}
        return await post_slowly(public_app(served.service), "/v1/rerank", body[:9], headers, rest=(0.5, body[9:]))

    response = run_virtual(ask())
    assert response.status_code == 200
    assert response.headers["x-cascade-degraded"] == "deadline_too_short"
    assert [item["index"] for item in response.json()["results"]] == [0, 1]
