"""Traces of the real process, at a collector on a real socket."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from cascade.testing.upstream import FakeTei
from tests.e2e.processes import Process, cascade, listening, serving, write_yaml
from tests.server.sidecar import BODIES, ROUTES
from tests.telemetry.collector import Collector, collecting

_CANARY: Final = "kingfisher-7f3a"
_TEXTS: Final = [f"{_CANARY} {number}" for number in range(4)]
_TRACE: Final = "0af7651916cd43dd8448eb211c80319c"
_HEADERS: Final = {
    "authorization": f"Bearer {_CANARY}",
    "cookie": f"session={_CANARY}",
    "user-agent": _CANARY,
    "x-request-id": _CANARY,
    "x-cascade-unit": _CANARY,
    "referer": f"http://{_CANARY}.test/",
    "traceparent": f"00-{_TRACE}-b7ad6b7169203331-01",
    "tracestate": f"{_CANARY}={_CANARY}",
    "baggage": f"user={_CANARY}",
}
_KEY: Final = "CASCADE_UPSTREAM_KEY"


def _stage(url: str) -> dict[str, Any]:
    """Return a stage that is what its server says, so that its scores are kept."""
    told = {"model": "fake/reranker", "dtype": "float16", "engine": "tei/1.9"}
    return {"adapter": "tei", "url": url, "auth": {"env": _KEY}, **told}


@contextmanager
def _served(folder: Path, small: FakeTei, large: FakeTei, **settings: Any) -> Iterator[Process]:
    with listening(small) as small_url, listening(large) as large_url:
        release = {
            "release": "traced-1",
            "stages": {
                "small": _stage(small_url),
                "large": _stage(large_url),
            },
            "depth": 50,
            "escalation": {"kind": "static", "top_m": 20},
            "budgets": {"total_ms": 20_000, "small_ms": 8000, "large_ms": 8000, "reserve_ms": 100},
        }
        release_file = write_yaml(folder / "release.yaml", release)
        config = write_yaml(folder / "settings.yaml", {"tracing": "otlp", **settings})
        arguments = ("--release", str(release_file), "--config", str(config), "--log-level", "debug")
        with serving(folder, *arguments, **{_KEY: f"{_CANARY}-key"}) as process:
            yield process


def _client(process: Process) -> httpx.Client:
    return httpx.Client(base_url=process.public, trust_env=False, timeout=60)


def _ask_everything(client: httpx.Client, large: FakeTei) -> int:
    """Send every dialect what it takes and what it refuses, while a server writes what it got into its errors."""
    count = 0
    for dialect, paths in ROUTES.items():
        for path in paths:
            echo = httpx.Response(424, json={"error": _CANARY, "error_type": _CANARY}, headers={"x-echo": _CANARY})
            garbage = httpx.Response(200, text=_CANARY)
            for reply in (None, echo, garbage):
                large.script = [] if reply is None else [reply]
                body = BODIES[dialect](f"{_CANARY} {count}", _TEXTS)  # one that is not kept
                assert client.post(path, json=body, headers=_HEADERS).status_code == 200
                count += 1
            malformed = {**_HEADERS, "traceparent": f"00-{_CANARY}-01", "x-request-timeout-ms": _CANARY}
            assert client.post(path, json=body, headers=malformed).status_code in (400, 422)
            assert client.post(path, content=_CANARY, headers=_HEADERS).status_code in (400, 422)
            count += 2
    candidates = [{"text": text, "id": f"{_CANARY}-{number}"} for number, text in enumerate(_TEXTS)]
    native = {"query": _CANARY, "candidates": candidates, "tenant": _CANARY, "explain": True}
    large.script = []
    assert client.post("/v1/cascade/rerank", json=native, headers=_HEADERS).status_code == 200
    return count + 1


def test_h7_g1_no_text_of_a_request_is_in_any_exported_byte(tmp_path: Path) -> None:
    """Nor an id, a tenant, a header, a key, or what a server wrote; all requests are there, whole, once they have ended."""
    small, large = FakeTei(key=f"{_CANARY}-key"), FakeTei(key=f"{_CANARY}-key")
    (tmp_path / "headers").write_text(f"x-key: {_CANARY}\n\n", encoding="utf-8")
    with (
        collecting() as collector,
        _served(tmp_path, small, large, trace_endpoint=collector.url, trace_headers_file="headers") as process,
    ):
        with _client(process) as client:
            count = _ask_everything(client, large)
            collector.wait_for(1)
            metrics = httpx.get(f"{process.admin}/metrics", trust_env=False).text
        assert process.stop() == 0
        lines = process.events()
    assert {head["x-key"] for head in collector.heads} == {_CANARY}
    sent = b"\n".join(collector.bodies)
    assert _CANARY.encode() not in sent
    assert b"kingfisher" not in sent
    spans = collector.spans
    roots = [span for span in spans if span.name == "rerank"]
    assert len(roots) == count
    by_id = {span.span_id: span for span in spans}
    assert len(by_id) == len(spans)
    assert all(
        span.parent_id in by_id and by_id[span.parent_id].trace_id == span.trace_id
        for span in spans
        if span not in roots
    )
    assert {span.parent_id for span in roots} == {"b7ad6b7169203331", ""}
    assert {span.name for span in spans} == {
        "rerank", "admission", "depth", "stage small", "stage large", "cache", "call", "escalation", "fallback",
    }  # fmt: skip
    decided = [span.attributes for span in roots if "cascade.decision.id" in span.attributes]
    assert len(decided) > len(roots) / 2
    assert {attributes["cascade.dialect"] for attributes in decided} == set(ROUTES)
    assert {attributes["cascade.stage"] for attributes in decided} == {"small", "large"}
    told = [line["trace_id"] for line in lines if line["event"] == "rerank"]
    assert sorted(told) == sorted(span.trace_id for span in roots)
    assert 'cascade_spans_dropped_total{reason="not_taken"} 0.0' in metrics
    sent_on = [seen.headers["traceparent"] for seen in (*small.posts, *large.posts) if "traceparent" in seen.headers]
    assert {header.split("-")[2] for header in sent_on} == {span.span_id for span in spans if span.name == "call"}
    own = [seen for seen in (*small.seen, *large.seen) if "traceparent" not in seen.headers]
    assert {seen.method for seen in own} >= {"GET"}  # looks are of no trace


@pytest.mark.parametrize("hangs", [False, True])
def test_h7_a_collector_that_does_not_take_spans_costs_spans_alone(tmp_path: Path, hangs: bool) -> None:
    """Answers are whole, the log has one line of it, and the process ends as ever."""
    with (
        collecting(Collector(status=500, hangs=hangs)) as collector,
        _served(tmp_path, FakeTei(), FakeTei(), trace_endpoint=collector.url) as process,
    ):
        with _client(process) as client:
            for _ in range(20):
                answer = client.post("/rerank", json=BODIES["tei"](_CANARY, _TEXTS))
                assert (answer.status_code, answer.headers["x-cascade-stage"]) == (200, "large")
                assert "x-cascade-degraded" not in answer.headers
        assert process.stop() == 0
        lines = process.events()
    told = [line["why"] for line in lines if "spans" in line["event"]]
    assert told == ([] if hangs else ["status_500"])
    assert not [line for line in lines if line["event"] == "internal fault"]


def test_tracing_is_checked_before_it_is_served(tmp_path: Path) -> None:
    """`config validate` names what cannot be used, and repeats no secret."""
    config = write_yaml(tmp_path / "settings.yaml", {"tracing": "otlp", "trace_headers_file": "headers"})
    (tmp_path / "headers").write_text(_CANARY, encoding="utf-8")
    ended = cascade("config", "validate", "--config", str(config), variables={})
    assert ended.returncode == 2
    assert b"trace_headers_file: line 1" in ended.stderr
    assert _CANARY.encode() not in ended.stderr
