"""Spans leave in a thread of their own; what a collector does not take is counted."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import orjson

from cascade.telemetry.span_schema import SpanName
from cascade.telemetry.spans import Span, child
from cascade.telemetry.trace_log import NotExported, SpanDrop, TraceLog
from tests.telemetry.captured import captured_log
from tests.telemetry.traces import Traces


@dataclass
class _Export:
    """Take what is given, or fail as ``fails`` says; each batch waits for ``gate``. ``got`` is set by each batch."""

    fails: list[Exception | None] = field(default_factory=list)
    refuses: int = 0
    batches: list[list[Span]] = field(default_factory=list)
    gate: threading.Event = field(default_factory=threading.Event)
    began: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    ended: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    closed: bool = False

    def export(self, spans: Sequence[Span]) -> int:
        self.batches.append(list(spans))
        self.began.release()
        self.gate.wait(60)
        failure = self.fails.pop(0) if self.fails else None
        self.ended.release()
        if failure is not None:
            raise failure
        return self.refuses

    def close(self) -> None:
        self.closed = True
        self.gate.set()


@dataclass
class _Counts:
    exported: int = 0
    dropped: Counter[SpanDrop] = field(default_factory=Counter)
    faults: list[BaseException] = field(default_factory=list)

    def export(self, count: int) -> None:
        self.exported += count

    def drop(self, reason: SpanDrop, count: int) -> None:
        self.dropped[reason] += count


def _spans(count: int) -> list[Span]:
    traces = Traces()
    with traces.tracer.begin():
        for _ in range(count - 1):
            with child(SpanName.CALL):
                pass
    return traces.only


@asynccontextmanager
async def _log(export: _Export, *, most: int = 1000, close_s: float = 20.0) -> AsyncIterator[tuple[TraceLog, _Counts]]:
    counts = _Counts()
    log = TraceLog(
        export,
        most=most,
        count_exported=counts.export,
        count_dropped=counts.drop,
        count_fault=counts.faults.append,
        wait_s=0.0,
    )
    try:
        yield log, counts
    finally:
        await log.aclose(close_s)


async def test_spans_are_exported_and_what_waits_leaves_at_the_end() -> None:
    """In order, in batches of 512 at most, and the export is closed behind them."""
    export = _Export()
    export.gate.set()
    spans = [*_spans(300), *_spans(300), *_spans(7)]
    async with _log(export) as (log, counts):
        for begin, end in ((0, 300), (300, 600), (600, 607)):
            log.offer(spans[begin:end], 0)
    assert [span for batch in export.batches for span in batch] == spans
    assert max(map(len, export.batches)) <= 512
    assert (counts.exported, dict(counts.dropped), export.closed) == (607, {}, True)


async def test_a_full_queue_drops_whole_traces() -> None:
    """Who offers never waits; what the slow collector has already is not in the queue."""
    export = _Export()
    async with _log(export, most=20) as (log, counts):
        log.offer(_spans(5), 0)
        assert export.began.acquire(timeout=20)
        log.offer(_spans(12), 0)
        log.offer(_spans(9), 0)
        log.offer(_spans(8), 3)
        assert dict(counts.dropped) == {SpanDrop.QUEUE_FULL: 9, SpanDrop.TOO_MANY: 3}
        export.gate.set()
    assert counts.exported == 25


async def test_a_collector_that_is_away_is_told_once_and_its_return_too() -> None:
    """Each span of it is counted, nothing is sent twice, and the log says why by a code."""
    export = _Export(fails=[NotExported("ConnectionError"), NotExported("status_500"), None, None])
    export.gate.set()
    with captured_log() as stream:
        async with _log(export) as (log, counts):
            for _ in range(4):
                log.offer(_spans(2), 0)
                assert export.ended.acquire(timeout=20)
        lines = [orjson.loads(line) for line in stream.getvalue().splitlines()]
    assert [(line["level"], line["event"], line.get("why")) for line in lines] == [
        ("error", "spans cannot be exported, and are dropped", "ConnectionError"),
        ("info", "spans are exported again", None),
    ]
    assert (counts.exported, dict(counts.dropped)) == (4, {SpanDrop.NOT_TAKEN: 4})
    assert len(export.batches) == 4


async def test_what_a_collector_refuses_in_part_is_counted() -> None:
    """The rest of the batch counts as exported."""
    export = _Export(refuses=2)
    export.gate.set()
    async with _log(export) as (log, counts):
        log.offer(_spans(5), 0)
    assert (counts.exported, dict(counts.dropped)) == (3, {SpanDrop.REFUSED: 2})


async def test_a_fault_of_ours_costs_its_batch_and_the_thread_goes_on() -> None:
    """It is counted as such."""
    export = _Export(fails=[RuntimeError("kingfisher")])
    export.gate.set()
    async with _log(export) as (log, counts):
        log.offer(_spans(2), 0)
        assert export.ended.acquire(timeout=20)
        log.offer(_spans(3), 0)
    assert [type(fault) for fault in counts.faults] == [RuntimeError]
    assert (counts.exported, dict(counts.dropped)) == (3, {SpanDrop.FAULT: 2})


async def test_a_stop_waits_for_a_slow_collector_no_longer_than_it_may() -> None:
    """What is under way and what waits is dropped and counted once, and so is what comes later."""
    export = _Export()
    async with _log(export, close_s=0.05) as (log, counts):
        log.offer(_spans(5), 0)
        assert export.began.acquire(timeout=20)
        log.offer(_spans(4), 0)
    log.offer(_spans(3), 0)
    assert export.ended.acquire(timeout=20)
    log._thread.join(20)
    assert (counts.exported, dict(counts.dropped)) == (0, {SpanDrop.SHUTDOWN: 12})
