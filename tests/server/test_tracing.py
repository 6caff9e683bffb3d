"""One request is one trace, through the real application."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from cascade.errors import StageTimeout
from cascade.server.app import public_app
from cascade.server.gate import open_access
from cascade.server.keys import hash_of
from cascade.telemetry.span_schema import Attribute, SpanName
from cascade.testing.stages import ScriptedStage
from cascade.testing.upstream import overlap
from tests.server.asgi import post_slowly
from tests.server.sidecar import BODIES, ROUTES, dumps, sidecar
from tests.server.traced import PARENT, TEXTS, TRACE, told_by
from tests.telemetry.traces import Traces

_ALL: Final = [(dialect, path) for dialect, paths in ROUTES.items() for path in paths]
_S = SpanName


@pytest.mark.parametrize(("dialect", "path"), _ALL)
@pytest.mark.parametrize("slowly", [False, True])
async def test_h7_a_request_of_every_dialect_is_one_trace(dialect: str, path: str, slowly: bool) -> None:
    """Its parts stand where they belong, whether its body comes at once or in pieces, and say what they were."""
    traces = Traces()
    served = sidecar(tracer=traces.tracer)
    body = dumps(BODIES[dialect]("the kingfisher dives", TEXTS))
    if slowly:
        rest = (0.01, body[20:])
        answer = await post_slowly(public_app(served.service), path, body[:20], {"traceparent": PARENT}, rest=rest)
    else:
        answer = await served.post(path, body, {"traceparent": PARENT})
    assert answer.status_code == 200
    assert traces.parents() == {
        _S.RERANK: {None},
        _S.ADMISSION: {_S.RERANK},
        _S.DEPTH: {_S.RERANK},
        _S.SMALL: {_S.RERANK},
        _S.ESCALATION: {_S.RERANK},
        _S.LARGE: {_S.RERANK},
    }
    root = traces.one(_S.RERANK)
    assert (root.parent_id, f"{root.trace.trace_id:032x}", root.failed) == (0xB7AD6B7169203331, TRACE, False)
    told = told_by(root)
    assert {name: told.pop(name) for name in ("cascade.elapsed_ms", "cascade.own_ms")}.keys()
    assert told == {
        "http.request.method": "POST",
        "http.route": path,
        "http.response.status_code": 200,
        "gen_ai.operation.name": "rerank",
        "gen_ai.rerank.candidate.count": 4,
        "gen_ai.rerank.top_n": 4,
        "cascade.dialect": dialect,
        "cascade.decision.id": answer.headers["x-cascade-decision-id"],
        "cascade.release.name": "test-1",
        "cascade.release.digest": "sha256:release",
        "cascade.arm": "stable",
        "cascade.level": "normal",
        "cascade.stage": "large",
        "cascade.action": "static",
        "cascade.escalated.count": 4,
        "cascade.excluded.count": 0,
        "cascade.depth": 4,
        "cascade.depth.reason": root.attributes[Attribute.DEPTH_REASON],
        "cascade.degraded": False,
        "cascade.budget_ms": 1000.0,
        "cascade.sampled_by": "ratio",
    }
    assert told_by(traces.one(_S.ADMISSION)) == {
        "cascade.admission.verdict": "admitted",
        "cascade.admission.lane": "short",
    }
    small = told_by(traces.one(_S.SMALL))
    assert small.pop("cascade.budget_ms") > 0
    assert small == {
        "gen_ai.operation.name": "rerank",
        "gen_ai.request.model": "scripted",
        "cascade.engine": "scripted",
        "cascade.round": 1,
        "cascade.sent.count": 4,
        "cascade.scored.count": 4,
        "cascade.cached.count": 0,
        "cascade.truncated.count": 0,
        "cascade.calls.count": 1,
        "cascade.tokens": traces.one(_S.SMALL).attributes[Attribute.TOKENS],
    }
    for name in (_S.DEPTH, _S.ESCALATION, _S.LARGE):
        told_by(traces.one(name))


async def test_every_query_of_a_body_has_a_span() -> None:
    """Its parts stand under it."""
    traces = Traces()
    served = sidecar(tracer=traces.tracer)
    body = {"text_1": ["kingfisher", "heron", "bread"], "text_2": ["a kingfisher", "a heron", "bread"]}
    assert (await served.post("/v1/score", body)).status_code == 200
    assert len(traces.named(_S.QUERY)) == 3
    found = traces.parents()
    assert (found[_S.QUERY], found[_S.SMALL], found[_S.DEPTH]) == ({_S.RERANK}, {_S.QUERY}, {_S.QUERY})
    assert [told_by(span)["cascade.degraded"] for span in traces.named(_S.QUERY)] == [False] * 3
    refused = await sidecar(
        ScriptedStage(overlap, fails=StageTimeout), ScriptedStage(overlap, fails=StageTimeout), tracer=traces.tracer
    ).post("/v1/score", body, {"x-cascade-fail-closed": "1"})
    assert refused.status_code == 503
    assert told_by(traces.named(_S.QUERY)[-1])["cascade.degraded.reasons"] == ("stage_timeout",)


@pytest.mark.parametrize(
    ("path", "body", "headers", "status", "fault"),
    [
        ("/rerank", b"{", {}, 400, "not_json"),
        ("/v1/cascade/rerank", {"query": "a"}, {}, 422, "schema"),
        ("/v1/cascade/rerank", {"query": "a", "candidates": []}, {"content-encoding": "gzip"}, 415, "unsupported"),
    ],
)
async def test_a_refused_request_tells_its_fault(
    path: str, body: Any, headers: dict[str, str], status: int, fault: str
) -> None:
    """It is no failure of the server's."""
    traces = Traces()
    answer = await sidecar(tracer=traces.tracer).post(path, body, headers)
    root = traces.one(_S.RERANK)
    assert answer.status_code == status
    told = told_by(root)
    assert (told["http.response.status_code"], told["error.type"], root.failed) == (status, fault, False)


async def test_a_request_that_is_not_let_in_is_not_traced(tmp_path: Path) -> None:
    """Who has no key has no say in what is exported."""
    traces = Traces()
    served = sidecar(tracer=traces.tracer)
    file = tmp_path / "keys.yaml"
    file.write_text(yaml.safe_dump({"keys": [{"name": "a", "sha256": hash_of("right").hex()}]}), encoding="utf-8")
    served.service.access = open_access(file, "public", "keys_file", served.service.metrics.keys)
    for key, status in {"wrong": 401, "right": 200}.items():
        headers = {"authorization": f"Bearer {key}", "traceparent": PARENT}
        assert (await served.post("/rerank", BODIES["tei"]("kingfisher", TEXTS), headers)).status_code == status
    assert [told_by(span)["http.response.status_code"] for span in traces.named(_S.RERANK)] == [200]


async def test_a_fault_of_ours_is_a_failure_without_its_text() -> None:
    """The span is ended, and has the class of the exception."""
    traces = Traces()
    served = sidecar(tracer=traces.tracer)

    def broken(*told: Any) -> Any:
        raise RuntimeError("kingfisher")

    served.service.admission.ask = broken  # type: ignore[assignment, method-assign]
    assert (await served.post("/rerank", BODIES["tei"]("kingfisher", TEXTS))).status_code == 500
    root = traces.one(_S.RERANK)
    assert root.failed
    assert root.attributes[Attribute.ERROR] == "RuntimeError"
    assert "kingfisher" not in repr([span.attributes for span in traces.only])
