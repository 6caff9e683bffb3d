"""The log line of each request: answered, refused, rejected or abandoned."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any, Final

import orjson
import pytest

from cascade.errors import StageOverloaded
from cascade.server.app import public_app
from cascade.testing.stages import ScriptedStage
from tests.server.asgi import scope_of
from tests.server.sidecar import BODIES, ROUTES, release_of, sidecar

_FAIL_CLOSED: Final = {"x-request-timeout-ms": "0", "x-cascade-fail-closed": "1"}


def _line(log: io.BytesIO) -> dict[str, Any]:
    """Return the only line."""
    (line,) = log.getvalue().splitlines()
    parsed: dict[str, Any] = orjson.loads(line)
    return parsed


async def test_an_answered_request_is_one_line_with_the_caller_s_id(log: io.BytesIO) -> None:
    """The line says that it was answered, and joins to the answer and to the caller's own log."""
    response = await sidecar().post("/rerank", BODIES["tei"]("q", ["a"]), {"x-request-id": "Req_1.a-b"})
    line = _line(log)
    assert (line["event"], line["outcome"], line["client_request_id"]) == ("rerank", "answered", "Req_1.a-b")
    assert line["decision_id"] == response.headers["x-cascade-decision-id"]


@pytest.mark.parametrize("value", ["two words", "", "a" * 129, "a=b", 'a"b', "a/b"])
async def test_g1_what_is_no_plain_id_is_not_logged(log: io.BytesIO, value: str) -> None:
    """A header that may hold anything but an id is left out."""
    await sidecar().post("/rerank", BODIES["tei"]("q", ["a"]), {"x-request-id": value})
    assert _line(log)["client_request_id"] is None


@pytest.mark.parametrize(("dialect", "path"), [(d, p) for d, paths in ROUTES.items() for p in paths])
async def test_b9_a_refused_answer_is_joined_to_its_line_and_not_counted_as_answered(
    log: io.BytesIO, dialect: str, path: str
) -> None:
    """A fail-closed 503 names its decision and reasons; its rounds count, the request and its reasons do not."""
    down = ScriptedStage(lambda q, t: 0.0, fails=StageOverloaded)
    served = sidecar(down, down, release=release_of(fallback="error"))
    response = await served.post(path, BODIES[dialect]("q", ["a"]))
    line = _line(log)
    assert response.status_code == 503
    assert line["outcome"] == "refused"
    assert response.headers["x-cascade-decision-id"] == line["decision_id"] == "decision-1"
    assert response.headers["x-cascade-degraded"] == "stage_overloaded"
    assert response.headers["x-cascade-release"] == line["release"] == "test-1"
    counted = {name for name, value in (await served.metrics()).items() if value}
    assert not [name for name in counted if name.startswith(("cascade_requests", "cascade_degraded", "cascade_depth"))]
    assert f'cascade_rejected_total{{dialect="{dialect}",status="503"}}' in counted
    assert 'cascade_rounds_total{outcome="stage_overloaded",stage="small"}' in counted


@pytest.mark.parametrize(
    ("path", "body", "headers", "told"),
    [
        ("/v1/rerank", {"query": "q", "documents": []}, {}, ("vllm", "empty", "documents", 400)),
        ("/rerank", {"texts": ["a"], "query": 7}, {}, ("tei", "schema", "query", 422)),
        ("/rerank", b"{", {}, ("vllm", "not_json", "body", 400)),
        ("/score", {"queries": "q", "items": [None]}, {}, ("vllm-score", "schema", "items", 400)),
        ("/v1/cascade/rerank", {"canary": 1}, {}, ("native", "schema", "(unnamed)", 422)),
        (
            "/v1/cascade/rerank",
            {"query": "q", "candidates": [{"text": "a", "canary": 1}]},
            {},
            ("native", "schema", "candidates", 422),
        ),
        (
            "/v1/cascade/rerank",
            {"query": "q", "candidates": [{"text": "a", "scores": {"canary": "x"}}]},
            {},
            ("native", "schema", "candidates", 422),
        ),
        (
            "/rerank",
            {"query": "q", "texts": ["a"]},
            {"x-request-timeout-ms": "canary"},
            ("tei", "schema", "x-request-timeout-ms", 422),
        ),
        (
            "/v1/rerank",
            {"query": "canary", "documents": ["canary"], "instruct": "canary"},
            {},
            ("vllm", "schema", "instruct", 400),
        ),
    ],
)
async def test_g1_a_rejected_request_is_one_line_without_content(
    log: io.BytesIO, path: str, body: Any, headers: dict[str, str], told: tuple[str, str, str, int]
) -> None:
    """Dialect, fault, field and status are told; a name that the caller made up is not."""
    await sidecar().post(path, body, {**headers, "x-request-id": "r1"})
    line = _line(log)
    del line["timestamp"]
    dialect, fault, field, status = told
    assert line == {
        "event": "rerank",
        "level": "info",
        "outcome": "rejected",
        "client_request_id": "r1",
        "dialect": dialect,
        "fault": fault,
        "field": field,
        "status": status,
    }


@pytest.mark.parametrize(("whole", "dialect"), [(False, None), (True, "tei")])
async def test_an_abandoned_request_is_one_line(log: io.BytesIO, whole: bool, dialect: str | None) -> None:
    """A client that goes away leaves a line; of one that left in its body the dialect is not known."""
    served = sidecar(ScriptedStage(lambda q, t: 0.0, delay_ms=600_000))
    body = orjson.dumps(BODIES["tei"]("q", ["a"]))
    messages: Iterator[dict[str, Any]] = iter(
        [{"type": "http.request", "body": body, "more_body": not whole}, {"type": "http.disconnect"}]
    )

    async def receive() -> Any:
        return next(messages)

    async def send(message: Any) -> None:
        """Send to nobody."""

    await public_app(served.service)(scope_of("/rerank", {"x-request-id": "r1"}), receive, send)
    line = _line(log)
    del line["timestamp"]
    assert line == {
        "event": "rerank",
        "level": "info",
        "outcome": "abandoned",
        "client_request_id": "r1",
        "dialect": dialect,
    }


async def test_a8_a_fault_of_ours_is_a_line_beside_the_request_s(log: io.BytesIO) -> None:
    """The class and the place of an exception are told, and neither its message nor the text that it was about."""
    await sidecar(ScriptedStage(lambda q, t: 0.0, fails=RuntimeError("canary"))).post(
        "/rerank", BODIES["tei"]("canary", ["canary"])
    )
    fault, request = map(orjson.loads, log.getvalue().splitlines())
    assert (fault["event"], fault["level"], fault["exception"]) == ("internal fault", "error", "RuntimeError")
    module, _, number = fault["place"].partition(":")
    assert module == "cascade.testing.stages"
    assert number.isdigit()
    assert request["degraded"] == ["internal_error"]
    assert b"canary" not in log.getvalue()
