"""Spans of rounds, of calls at servers and of kept scores."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx

from cascade.server.app import public_app
from cascade.server.caching import open_cache
from cascade.server.settings import Settings
from cascade.telemetry.metrics import Metrics
from cascade.telemetry.span_schema import Attribute, SpanName
from cascade.testing.clock import run_virtual
from cascade.testing.stages import ScriptedStage
from cascade.testing.upstream import FakeTei, overlap
from tests.server.asgi import scope_of
from tests.server.sidecar import BODIES, dumps, sidecar
from tests.server.traced import TEXTS, before, told_by
from tests.telemetry.traces import Traces

_S = SpanName


async def test_requests_at_the_same_time_keep_apart() -> None:
    """Each trace has its own spans, and each call at a server carries its own."""
    traces, tei = Traces(), FakeTei(delay_ms=5.0)
    served = before(traces, tei)

    async def ask(number: int) -> None:
        parent = f"00-{number + 1:032x}-b7ad6b7169203331-01"
        body = BODIES["tei"]("kingfisher", [*TEXTS, f"number {number}"])
        assert (await served.post("/rerank", body, {"traceparent": parent})).status_code == 200

    await asyncio.gather(*(ask(number) for number in range(16)))
    assert len(traces.kept) == 16
    for spans in traces.kept:
        names = {span.id: span.name for span in spans}
        (call,) = (span for span in spans if span.name is _S.CALL)
        assert names[call.parent_id or 0] is _S.LARGE
        number = call.trace.trace_id - 1
        (seen,) = (seen for seen in tei.posts if f"number {number}" in seen.body["texts"])
        assert seen.headers["traceparent"] == f"00-{number + 1:032x}-{call.id:016x}-01"


async def test_a_call_tells_of_its_server_and_its_failure_and_repetition_are_spans() -> None:
    """Where it went, what it sent, what came back, and which repetition it is; no token, no text."""
    traces, tei = Traces(), FakeTei()
    served = before(traces, tei)
    for _ in range(12):  # what pays for a retry, and is known of a call's time
        await served.post("/rerank", BODIES["tei"]("kingfisher", TEXTS))
    traces.kept.clear()
    tei.script = [httpx.Response(503, json={"error": "kingfisher"})]
    assert (await served.post("/rerank", BODIES["tei"]("kingfisher", TEXTS))).headers["x-cascade-stage"] == "large"
    first, second = traces.named(_S.CALL)
    common = {
        "http.request.method": "POST",
        "server.address": "tei.test",
        "server.port": 8080,
        "cascade.upstream.route": "/rerank",
        "cascade.sent.count": 4,
        "cascade.tokens": first.attributes[Attribute.TOKENS],
    }
    assert told_by(first) == common | {"http.response.status_code": 503, "error.type": "503"}
    told = traces.one(_S.LARGE).attributes[Attribute.TOKENS]
    assert told_by(second) == common | {
        "http.response.status_code": 200,
        "http.request.resend_count": 1,
        "cascade.tokens": told,
    }
    assert (first.failed, second.failed, traces.one(_S.LARGE).failed) == (True, False, False)
    assert traces.parents()[_S.CALL] == {_S.LARGE}
    assert "kingfisher" not in repr([span.attributes for span in traces.only])


async def test_a_call_has_the_tokens_that_its_server_told_and_else_an_estimate() -> None:
    """As its round has: what was told stands in place of what was guessed before the call."""
    traces, tei = Traces(), FakeTei()
    served = before(traces, tei)
    scores = [{"index": position, "score": 1.0 - position} for position in range(len(TEXTS))]
    tei.script = [
        httpx.Response(200, json=scores, headers={"x-compute-tokens": "12345"}),
        httpx.Response(200, json=scores),
    ]
    for _ in range(2):
        assert (await served.post("/rerank", BODIES["tei"]("kingfisher", TEXTS))).status_code == 200
    told, (guessed, whole) = [
        [next(span for span in spans if span.name is name).attributes[Attribute.TOKENS] for name in (_S.CALL, _S.LARGE)]
        for spans in traces.kept
    ]
    assert (told, guessed) == ([12345, 12345], whole)
    assert whole not in (0, 12345)


async def test_a_failed_stage_is_told_and_what_was_answered_for_it() -> None:
    """The round has its code, the fallback its reason and stage, and the request is no failure: it was answered."""
    traces, tei = Traces(), FakeTei()
    served = before(traces, tei)
    tei.script = [httpx.ReadError("kingfisher")]
    answer = await served.post("/rerank", BODIES["tei"]("kingfisher", TEXTS))
    assert answer.headers["x-cascade-degraded"] == "stage_unreachable"
    call, large, fallback, root = (traces.one(name) for name in (_S.CALL, _S.LARGE, _S.FALLBACK, _S.RERANK))
    assert (call.failed, large.failed, fallback.failed, root.failed) == (True, True, False, False)
    assert told_by(large)["error.type"] == told_by(call)["error.type"]
    assert told_by(fallback) == {"cascade.stage": "small", "cascade.degraded.reasons": ("stage_unreachable",)}
    assert told_by(root)["cascade.degraded.reasons"] == ("stage_unreachable",)
    assert "error.type" not in root.attributes


def test_a_round_that_there_is_no_time_for_is_told() -> None:
    """It has a span without calls, with its code; the answer falls back for it."""

    async def run() -> None:
        traces, tei = Traces(), FakeTei()
        body = BODIES["native"]("kingfisher", TEXTS) | {"deadline_ms": 15}
        answer = await before(traces, tei).post("/v1/cascade/rerank", body)
        assert answer.headers["x-cascade-degraded"] == "deadline_too_short"
        for name in (_S.SMALL, _S.LARGE):
            told = told_by(traces.one(name))
            assert (told["error.type"], told["cascade.sent.count"], traces.one(name).failed) == ("not_sent", 0, True)
        assert traces.named(_S.CALL) == []
        assert told_by(traces.one(_S.FALLBACK))["cascade.stage"] == "retrieval"

    run_virtual(run())


async def test_a_client_that_goes_away_leaves_whole_spans() -> None:
    """What was under way ends as cancelled, and the request with the code of it."""
    traces, tei = Traces(), FakeTei(hangs=True)
    served = before(traces, tei)
    messages: list[Any] = [
        {"type": "http.request", "body": dumps(BODIES["tei"]("kingfisher", TEXTS)), "more_body": False}
    ]

    async def receive() -> Any:
        if messages:
            return messages.pop()
        for _ in range(50):  # turns of the loop, in which the server is called
            await asyncio.sleep(0)
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        pass

    await public_app(served.service)(scope_of("/rerank"), receive, send)
    root, large, call = (traces.one(name) for name in (_S.RERANK, _S.LARGE, _S.CALL))
    assert (root.attributes[Attribute.STATUS], root.attributes[Attribute.ERROR]) == (499, "client_gone")
    assert large.attributes[Attribute.ERROR] == call.attributes[Attribute.ERROR] == "cancelled"
    assert root.began_ns <= call.began_ns <= call.ended_ns <= large.ended_ns <= root.ended_ns
    assert tei.cancelled == 1


def test_looking_up_kept_scores_is_a_span() -> None:
    """With what was found; what is waited for is one too."""

    async def run() -> None:
        traces = Traces()
        cache = open_cache(Settings(), {}, Metrics().cache, asyncio.get_running_loop().time)
        served = sidecar(ScriptedStage(overlap, delay_ms=20.0), cache=cache, tracer=traces.tracer)
        body = BODIES["tei"]("kingfisher", TEXTS)
        await asyncio.gather(*(served.post("/rerank", body) for _ in range(2)))
        found = [told_by(span) for span in traces.named(_S.CACHE)]
        zeros = {
            "cascade.cache.hits": 0,
            "cascade.cache.shared": 0,
            "cascade.cache.misses": 0,
            "cascade.cache.faults": 0,
        }
        assert zeros | {"cascade.cache.misses": 4} in found
        assert zeros | {"cascade.cache.shared": 4} in found
        assert traces.parents()[_S.CACHE] == {_S.SMALL, _S.LARGE}
        assert traces.parents()[_S.CACHE_WAIT] <= {_S.SMALL, _S.LARGE}
        traces.kept.clear()
        await served.post("/rerank", body)
        assert [told_by(span) for span in traces.named(_S.CACHE)] == [zeros | {"cascade.cache.hits": 4}] * 2
        assert [told_by(span)["cascade.cached.count"] for span in (traces.one(_S.SMALL), traces.one(_S.LARGE))] == [
            4,
            4,
        ]

    run_virtual(run())
