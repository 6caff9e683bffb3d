"""What a caller's headers do, what servers and log lines are told of a trace, and what is of none."""

from __future__ import annotations

import asyncio
import io
import logging
from typing import Any

import orjson
import pytest

from cascade.errors import StageTimeout
from cascade.stages.base import Stage
from cascade.telemetry.logs import configure_logging
from cascade.telemetry.span_schema import SpanName
from cascade.testing.clock import run_virtual
from cascade.testing.stages import ScriptedStage
from cascade.testing.upstream import FakeTei, overlap
from cascade.text import Text
from cascade.types import StageName, StageScores
from tests.logs import logging_given_back
from tests.recorded import Kept
from tests.server.releases import Models, another, served
from tests.server.sidecar import BODIES, release_of, sidecar
from tests.server.test_shadowing import _beside, _Controller
from tests.server.traced import NOT_SAMPLED, PARENT, TEXTS, TRACE, before, tei_stage, told_by
from tests.telemetry.traces import Traces

_S = SpanName


class _SlowOnce(ScriptedStage):
    """Take a while for the query that says so."""

    __slots__ = ()

    async def score(self, query: Text, *args: Any, **fields: Any) -> StageScores:
        if query.reveal() == "slow":
            await asyncio.sleep(0.3)
        return await super().score(query, *args, **fields)


@pytest.mark.parametrize("parent", ["kingfisher", "00-kingfisher-7f3a-01", "", PARENT + "-more", PARENT.upper()])
async def test_a_malformed_parent_begins_a_new_trace(parent: str) -> None:
    """It is never an error."""
    traces = Traces()
    headers = {"traceparent": parent, "tracestate": "a=1"}
    answer = await sidecar(tracer=traces.tracer).post("/rerank", BODIES["tei"]("kingfisher", TEXTS), headers)
    assert answer.status_code == 200
    root = traces.one(_S.RERANK)
    assert (root.parent_id, root.trace.state) == (None, "")
    assert f"{root.trace.trace_id:032x}" != TRACE


async def test_a_trace_that_is_not_sampled_goes_on_at_servers() -> None:
    """They are told that it is not; nothing is exported; state is passed on, and baggage only where asked."""
    traces, tei = Traces(), FakeTei()
    served = before(traces, tei)
    headers = {"traceparent": NOT_SAMPLED, "tracestate": "congo=t61", "baggage": "user=1"}
    await served.post("/rerank", BODIES["tei"]("kingfisher", TEXTS), headers)
    (seen,) = tei.posts
    assert seen.headers["traceparent"].startswith(f"00-{TRACE}-")
    assert seen.headers["traceparent"].endswith("-00")
    assert seen.headers["tracestate"] == "congo=t61"
    assert "baggage" not in seen.headers
    assert traces.kept == []
    passed, tei = Traces({"baggage": True}), FakeTei()
    await before(passed, tei).post("/rerank", BODIES["tei"]("kingfisher", TEXTS), headers)
    assert tei.posts[0].headers["baggage"] == "user=1"


async def test_without_tracing_no_header_leaves_and_no_line_names_a_trace() -> None:
    """Not even the caller's own."""
    tei = FakeTei()
    stages: dict[StageName, Stage] = {StageName.SMALL: ScriptedStage(overlap), StageName.LARGE: tei_stage(tei)}
    served = sidecar(stages=stages)
    with logging_given_back():
        stream = io.BytesIO()
        configure_logging("debug", stream)
        await served.post("/rerank", BODIES["tei"]("kingfisher", TEXTS), {"traceparent": PARENT, "tracestate": "a=1"})
    assert not {"traceparent", "tracestate"} & tei.posts[0].headers.keys()
    assert "trace_id" not in orjson.loads(stream.getvalue().splitlines()[-1])


async def test_lines_and_records_name_the_trace() -> None:
    """Of a decision, a refusal, a fault and what a library logs meanwhile; sampled or not."""
    for parent in (PARENT, NOT_SAMPLED):
        traces, kept = Traces(), Kept()

        def scored(query: str, text: str) -> float:
            logging.getLogger("some.library").warning("kingfisher")
            return overlap(query, text)

        served = sidecar(ScriptedStage(scored), tracer=traces.tracer, recorder=kept)
        with logging_given_back():
            stream = io.BytesIO()
            configure_logging("debug", stream)
            await served.post("/rerank", BODIES["tei"]("kingfisher", TEXTS), {"traceparent": parent})
            await served.post("/rerank", b"{", {"traceparent": parent})
            logging.getLogger("some.library").warning("after")
        *lines, last = map(orjson.loads, stream.getvalue().splitlines())
        assert {line["event"] for line in lines} == {"library", "rerank"}
        assert {line["trace_id"] for line in lines} == {TRACE}
        assert "trace_id" not in last
        assert [decided.decision.trace_id for decided in kept.decided] == [TRACE]


def test_what_is_scored_beside_answers_is_of_no_trace() -> None:
    """Neither a shadow nor the small stage of mode observe opens a span, or names the trace in its record."""

    async def shadowed() -> None:
        traces, kept = Traces(), Kept()
        served_ = served(Models(), tracer=traces.tracer, recorder=kept)
        candidate = await another(served_, rollout={"shadow": {"share": 1.0}})
        served_.service.traffic.split(candidate, 0.0)
        beside = _beside(served_, candidate, _Controller())
        for _ in range(3):
            await served_.post("/rerank", BODIES["tei"]("the kingfisher dives", TEXTS))
        await asyncio.sleep(5.0)
        await beside.aclose()
        await candidate.aclose()
        assert [len(traces.named(name)) for name in (_S.RERANK, _S.SMALL, _S.LARGE)] == [3, 3, 3]
        told = [(decided.decision.arm, decided.decision.trace_id is None) for decided in kept.decided]
        assert sorted(told) == sorted([("stable", False)] * 3 + [("shadow", True)] * 3)

    async def observed() -> None:
        traces, kept, small = Traces(), Kept(), ScriptedStage(overlap)
        served_ = sidecar(small, release=release_of(mode="observe"), tracer=traces.tracer, recorder=kept)
        await served_.post("/rerank", BODIES["tei"]("kingfisher", TEXTS))
        await asyncio.sleep(1.0)
        assert len(small.calls) == 1
        assert set(traces.parents()) == {_S.RERANK, _S.ADMISSION, _S.LARGE}
        assert [decided.decision.trace_id is None for decided in kept.decided] == [False]

    async def observed_while_another_query_is_scored() -> None:
        """Have a small stage begin beside an answer while the request, and so its trace, is under way."""
        traces, small = Traces(), ScriptedStage(overlap)
        large = _SlowOnce(overlap)
        served_ = sidecar(small, large, release=release_of(mode="observe"), tracer=traces.tracer, recorder=Kept())
        body = {"text_1": ["slow", "kingfisher"], "text_2": ["a kingfisher", "a heron"]}
        asking = asyncio.create_task(served_.post("/v1/score", body))
        await asyncio.sleep(0.1)
        assert (len(small.calls), asking.done()) == (1, False)
        assert (await asking).status_code == 200
        assert len(traces.named(_S.LARGE)) == 2
        assert traces.named(_S.SMALL) == []

    run_virtual(shadowed())
    run_virtual(observed())
    run_virtual(observed_while_another_query_is_scored())


async def test_a_refused_answer_is_kept_whole_at_a_share_of_nothing() -> None:
    """What a request turned out to be keeps its trace, with all of its spans."""
    traces = Traces({"ratio": 0.0, "keep": frozenset({"failed", "degraded"})})
    failing = ScriptedStage(overlap, fails=StageTimeout)
    served_ = sidecar(failing, failing, tracer=traces.tracer)
    good = sidecar(tracer=traces.tracer)
    await good.post("/rerank", BODIES["tei"]("kingfisher", TEXTS))
    assert traces.kept == []
    await served_.post("/rerank", BODIES["tei"]("kingfisher", TEXTS))
    await served_.post("/rerank", BODIES["tei"]("kingfisher", TEXTS), {"x-cascade-fail-closed": "1"})
    degraded, failed = traces.named(_S.RERANK)
    assert told_by(degraded)["cascade.sampled_by"] == "degraded"
    assert (told_by(failed)["cascade.sampled_by"], told_by(failed)["error.type"]) == ("failed", "not_answered")
    whole = [_S.ADMISSION, _S.DEPTH, _S.SMALL, _S.ESCALATION, _S.LARGE, _S.FALLBACK, _S.RERANK]
    assert [span.name for span in traces.kept[0]] == whole
