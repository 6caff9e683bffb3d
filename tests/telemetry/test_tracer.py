"""Spans of a request, and which of them are exported."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from cascade.errors import RequestError, RequestFault, StageTimeout
from cascade.telemetry.span_schema import Attribute, SpanName
from cascade.telemetry.spans import MOST_SPANS, NOTHING, child, current, outgoing, trace_id_now, untraced
from cascade.telemetry.tracer import Keep, Sampling, Tracer
from tests.telemetry.traces import Traces

_TRACE = "0af7651916cd43dd8448eb211c80319c"
_SAMPLED = f"00-{_TRACE}-b7ad6b7169203331-01"
_NOT_SAMPLED = f"00-{_TRACE}-b7ad6b7169203331-00"


def test_spans_stand_under_the_one_that_is_open() -> None:
    """Children name their parent, times are inside those of the parent, and the root names the caller's span."""
    traces = Traces()
    with traces.tracer.begin(parents=[_SAMPLED]), child(SpanName.SMALL), child(SpanName.CALL):
        pass
    call, small, root = traces.only
    assert (root.name, small.name, call.name) == (SpanName.RERANK, SpanName.SMALL, SpanName.CALL)
    assert root.trace.trace_id == int(_TRACE, 16)
    assert (root.parent_id, small.parent_id, call.parent_id) == (0xB7AD6B7169203331, root.id, small.id)
    assert root.began_ns <= small.began_ns <= call.began_ns <= call.ended_ns <= small.ended_ns <= root.ended_ns
    assert len({root.id, small.id, call.id}) == 3


def test_without_a_trace_nothing_is_made() -> None:
    """A span that is opened then is the one that does nothing, and no header leaves."""
    with child(SpanName.SMALL) as span:
        span.set(Attribute.SENT, 3)
        span.fail("code")
    assert span is NOTHING
    assert current() is NOTHING
    assert (trace_id_now(), list(outgoing())) == (None, [])


async def test_tasks_stand_under_the_span_that_they_were_begun_in() -> None:
    """Of many requests at a time, each span is of its own request and parent."""
    traces = Traces()
    tracer = traces.tracer

    async def call(number: int) -> None:
        with child(SpanName.CALL) as span:
            await asyncio.sleep(0)
            span.set(Attribute.SENT, number)

    async def request(number: int) -> None:
        with tracer.begin() as root:
            root.set(Attribute.CANDIDATES, number)
            with child(SpanName.LARGE):
                await asyncio.gather(*(call(number) for _ in range(3)))

    await asyncio.gather(*(request(number) for number in range(20)))
    assert len(traces.kept) == 20
    for spans in traces.kept:
        (root,) = (span for span in spans if span.is_root)
        (large,) = (span for span in spans if span.name is SpanName.LARGE)
        calls = [span for span in spans if span.name is SpanName.CALL]
        number = root.attributes[Attribute.CANDIDATES]
        assert [span.attributes[Attribute.SENT] for span in calls] == [number] * 3
        assert {span.parent_id for span in calls} == {large.id}
        assert {span.trace.trace_id for span in spans} == {root.trace.trace_id}
    assert len({spans[0].trace.trace_id for spans in traces.kept}) == 20


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (RequestError(RequestFault.TOO_LONG, "body", "kingfisher"), "too_long"),
        (StageTimeout("kingfisher", "deadline", elapsed_ms=1.0, budget_ms=1.0), "deadline"),
        (asyncio.CancelledError("kingfisher"), "cancelled"),
        (TimeoutError("kingfisher"), "timeout"),
        (ValueError("kingfisher"), "ValueError"),
    ],
)
def test_g1_h7_of_an_exception_the_code_is_told_and_never_its_text(error: BaseException, code: str) -> None:
    """The span fails with the code, and the exception goes on."""
    traces = Traces()
    with pytest.raises(type(error)), traces.tracer.begin(), child(SpanName.SMALL):
        raise error
    small, root = traces.only
    assert small.failed
    assert (small.attributes[Attribute.ERROR], root.attributes[Attribute.ERROR]) == (code, code)
    assert "kingfisher" not in repr([span.attributes for span in traces.only])


def test_the_first_code_of_a_failure_is_told() -> None:
    """What is said before an exception passes stands."""
    traces = Traces()
    with traces.tracer.begin() as root:
        root.fail("first")
        root.fail("second")
    assert root.attributes[Attribute.ERROR] == "first"


def test_a_trace_is_bounded_and_what_is_left_out_counted() -> None:
    """The root is always there."""
    traces = Traces()
    with traces.tracer.begin():
        for _ in range(MOST_SPANS + 6):
            with child(SpanName.CALL):
                pass
    assert traces.only[-1].is_root
    assert len(traces.only) == MOST_SPANS
    assert traces.left_out == 7


async def test_what_outlives_its_request_is_of_no_trace() -> None:
    """A task that was begun inside opens no span, sends no header and names no trace once the request has ended."""
    traces = Traces()
    ended = asyncio.Event()

    async def late() -> tuple[object, list[tuple[str, str]], str | None]:
        await ended.wait()
        with child(SpanName.CALL) as span:
            return span, list(outgoing()), trace_id_now()

    with traces.tracer.begin():
        task = asyncio.create_task(late())
    ended.set()
    assert await task == (NOTHING, [], None)
    assert [span.name for span in traces.only] == [SpanName.RERANK]


async def test_a_span_that_ends_after_its_request_is_not_exported() -> None:
    """Nobody waited for it."""
    traces = Traces()
    ended = asyncio.Event()

    async def late() -> None:
        with child(SpanName.CALL):
            await ended.wait()

    with traces.tracer.begin():
        task = asyncio.create_task(late())
        await asyncio.sleep(0)
    ended.set()
    await task
    assert [span.name for span in traces.only] == [SpanName.RERANK]


async def test_what_is_begun_untraced_is_of_no_trace() -> None:
    """The request goes on with its own span."""
    traces = Traces()

    async def beside() -> bool:
        return child(SpanName.CALL) is NOTHING and trace_id_now() is None

    with traces.tracer.begin() as root:
        with untraced():
            task = asyncio.create_task(beside())
        assert current() is root
        assert await task


def test_headers_name_the_open_span() -> None:
    """Servers are told the innermost span, whether the trace is sampled, and the caller's state."""
    traces = Traces()
    with traces.tracer.begin(parents=[_SAMPLED], states=["a=1"], baggage=["b=2"]), child(SpanName.CALL) as call:
        sent = dict(outgoing())
        assert trace_id_now() == _TRACE
    assert sent == {"traceparent": f"00-{_TRACE}-{call.id:016x}-01", "tracestate": "a=1"}  # type: ignore[attr-defined]


def test_headers_leave_of_a_trace_that_is_not_sampled() -> None:
    """Servers are told that it is not, and the root's span stands for all."""
    traces = Traces()
    with traces.tracer.begin(parents=[_NOT_SAMPLED]) as root, child(SpanName.CALL) as call:
        sent = dict(outgoing())
    assert call is NOTHING
    assert sent == {"traceparent": f"00-{_TRACE}-{root.id:016x}-00"}
    assert traces.kept == []


def test_baggage_is_passed_on_where_asked() -> None:
    """Only then."""
    with Traces({"baggage": True}).tracer.begin(baggage=["b=2", "c=3"]):
        assert dict(outgoing())["baggage"] == "b=2,c=3"


def _share(sampling: Sampling, parents: list[str], count: int = 2000) -> float:
    kept: list[Any] = []
    tracer = Tracer(sampling, lambda spans, left_out: kept.append(spans))
    for _ in range(count):
        with tracer.begin(parents=parents):
            pass
    return len(kept) / count


@pytest.mark.parametrize(
    ("ratio", "trusts", "parents", "least", "most"),
    [
        (1.0, False, [], 1.0, 1.0),
        (0.0, False, [], 0.0, 0.0),
        (0.5, False, [], 0.4, 0.6),
        (1.0, False, [_SAMPLED], 1.0, 1.0),
        (0.0, False, [_SAMPLED], 0.0, 0.0),
        (0.5, False, [_SAMPLED], 0.4, 0.6),
        (0.0, True, [_SAMPLED], 1.0, 1.0),
        (1.0, False, [_NOT_SAMPLED], 0.0, 0.0),
        (1.0, True, [_NOT_SAMPLED], 0.0, 0.0),
        (0.5, True, ["malformed"], 0.4, 0.6),
    ],
)
def test_a_caller_can_ask_for_less_and_for_more_only_where_trusted(
    ratio: float, trusts: bool, parents: list[str], least: float, most: float
) -> None:
    """The share is drawn for whoever is not trusted, also where every request names the same trace."""
    assert least <= _share(Sampling(ratio=ratio, trust_parent=trusts), parents) <= most


@pytest.mark.parametrize(
    ("keep", "told", "why"),
    [
        (Keep.DEGRADED, {Attribute.DEGRADED: True}, "degraded"),
        (Keep.ESCALATED, {Attribute.ESCALATED: 3}, "escalated"),
        (Keep.DEGRADED, {Attribute.DEGRADED: False, Attribute.ESCALATED: 3}, None),
        (Keep.ESCALATED, {Attribute.ESCALATED: 0, Attribute.DEGRADED: True}, None),
    ],
)
def test_what_a_request_was_can_keep_its_trace(keep: Keep, told: dict[Attribute, Any], why: str | None) -> None:
    """Known at its end, of a trace that is not sampled: its spans are whole, and it says why it is there."""
    traces = Traces({"ratio": 0.0, "keep": frozenset({keep})})
    with traces.tracer.begin() as root:
        with child(SpanName.SMALL):
            assert dict(outgoing())["traceparent"].endswith("-00")
        for name, value in told.items():
            root.set(name, value)
    assert [[span.name for span in spans] for spans in traces.kept] == (
        [] if why is None else [[SpanName.SMALL, SpanName.RERANK]]
    )
    if why is not None:
        assert root.attributes[Attribute.SAMPLED_BY] == why


def test_failed_and_slow_requests_can_be_kept() -> None:
    """A refusal of the caller's is no failure; slow is from the stated time on."""
    now = [0]
    kept: list[Any] = []

    def ask(keep: Keep, *, ns: int = 0, failed: bool = False) -> bool:
        sampling = Sampling(ratio=0.0, keep=frozenset({keep}), slow_ms=5.0)
        tracer = Tracer(sampling, lambda spans, left_out: kept.append(spans), clock_ns=lambda: now[0])
        kept.clear()
        with tracer.begin() as root:
            root.set(Attribute.ERROR, "schema")
            now[0] += ns
            if failed:
                root.fail("500")
        return bool(kept)

    assert ask(Keep.FAILED, failed=True)
    assert not ask(Keep.FAILED)
    assert ask(Keep.SLOW, ns=5_000_000)
    assert not ask(Keep.SLOW, ns=4_999_999)
    assert not ask(Keep.DEGRADED, ns=5_000_000, failed=True)


@pytest.mark.parametrize(("sampling", "why"), [({"trust_parent": True}, "parent"), ({}, "ratio")])
def test_a_trace_says_who_had_it_sampled(sampling: dict[str, Any], why: str) -> None:
    """The share, or a caller that is trusted."""
    traces = Traces(sampling)
    with traces.tracer.begin(parents=[_SAMPLED]):
        pass
    assert traces.only[0].attributes[Attribute.SAMPLED_BY] == why
