"""Spans of one request: opened anywhere on its way, gathered until it ends. Without a trace under way nothing is done.

The span that is open is found by context, as tasks inherit it: whoever opens one inside hands nothing on. A span holds
numbers and words of `span_schema` alone, and of an exception its code, never its text.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import TracebackType
from typing import Final, Protocol, Self

from cascade.errors import RequestError, StageError
from cascade.telemetry.span_schema import Attribute, SpanName, Value
from cascade.telemetry.w3c import traceparent

__all__ = [
    "MOST_SPANS",
    "NOTHING",
    "Opened",
    "Span",
    "Trace",
    "child",
    "current",
    "outgoing",
    "trace_id_now",
    "untraced",
]

MOST_SPANS: Final = 512
"""Of one trace, its root among them; what a body of very many queries opens beyond is counted, and left out."""


class Opened(Protocol):
    """A span while it is open, or what stands in for one."""

    def set(self, attribute: Attribute, value: Value | None) -> None:
        """Set an attribute; None sets nothing."""
        ...

    def fail(self, code: str) -> None:
        """Mark as failed, with the code of the first failure that is told."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class _Nothing:
    """Stand in for a span where nothing is recorded."""

    __slots__ = ()

    def set(self, attribute: Attribute, value: Value | None) -> None: ...

    def fail(self, code: str) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


NOTHING: Final = _Nothing()


class Trace:
    """What the spans of one request share.

    ``sampled`` is what servers are told; ``records`` tells whether spans are gathered, which may be so for a trace that
    is not sampled too, until its end says whether it is kept. ``new_id`` gives 64 random bits, ``now_ns`` the time since
    the epoch, ``ended`` is called with the root once it ends.
    """

    __slots__ = (
        "baggage",
        "ended",
        "is_over",
        "left_out",
        "new_id",
        "now_ns",
        "records",
        "sampled",
        "spans",
        "state",
        "trace_id",
    )

    def __init__(
        self,
        trace_id: int,
        *,
        sampled: bool,
        records: bool,
        new_id: Callable[[], int],
        now_ns: Callable[[], int],
        ended: Callable[[Span], None],
        state: str = "",
        baggage: str = "",
    ) -> None:
        self.trace_id = trace_id
        self.sampled = sampled
        self.records = records
        self.new_id = new_id
        self.now_ns = now_ns
        self.ended = ended
        self.state = state
        self.baggage = baggage
        self.spans: list[Span] = []
        self.left_out = 0
        self.is_over = False

    def keep(self, span: Span) -> None:
        """Take a span that has ended."""
        if self.is_over:
            return  # the request did not wait for it
        if len(self.spans) < MOST_SPANS - 1 or span.is_root:
            self.spans.append(span)
        else:
            self.left_out += 1
        if span.is_root:
            self.is_over = True
            self.ended(span)

    def taken(self) -> list[Span]:
        """Return the spans, and hold them no longer: else each would hold the other."""
        spans, self.spans = self.spans, []
        return spans


class Span:
    """One span, open inside its ``with`` block. ``parent_id`` is None where there is none.

    ``failed`` tells whether it is an error of what it stands for: the root of a request that was the caller's fault has a
    code and is none.
    """

    __slots__ = (
        "_before",
        "attributes",
        "began_ns",
        "ended_ns",
        "failed",
        "id",
        "is_root",
        "name",
        "parent_id",
        "trace",
    )

    def __init__(self, trace: Trace, name: SpanName, parent_id: int | None, *, is_root: bool = False) -> None:
        self.trace = trace
        self.name = name
        self.id = trace.new_id()
        self.parent_id = parent_id
        self.is_root = is_root
        self.attributes: dict[Attribute, Value] = {}
        self.failed = False
        self.began_ns = self.ended_ns = 0
        self._before: Span | None = None

    def set(self, attribute: Attribute, value: Value | None) -> None:
        if value is not None:
            self.attributes[attribute] = value

    def fail(self, code: str) -> None:
        self.failed = True
        self.attributes.setdefault(Attribute.ERROR, code)

    def __enter__(self) -> Self:
        self._before = _CURRENT.get()
        _CURRENT.set(self)
        self.began_ns = self.trace.now_ns()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.ended_ns = self.trace.now_ns()
        _CURRENT.set(self._before)
        self._before = None
        if error is not None:
            self.fail(_code_of(error))
        self.trace.keep(self)


_CURRENT: ContextVar[Span | None] = ContextVar("span", default=None)


def _code_of(error: BaseException) -> str:
    match error:
        case RequestError():
            return error.fault
        case StageError():
            return error.code
        case asyncio.CancelledError():
            return "cancelled"
        case TimeoutError():
            return "timeout"
        case _:
            return type(error).__name__


def child(name: SpanName) -> Opened:
    """Return a span inside the one that is open, to be entered at once; what does nothing where none is recorded."""
    parent = _CURRENT.get()
    if parent is None or not parent.trace.records or parent.trace.is_over:
        return NOTHING
    return Span(parent.trace, name, parent.id)


def current() -> Opened:
    """Return the span that is open."""
    return _CURRENT.get() or NOTHING


def trace_id_now() -> str | None:
    """Return the id of the trace that is under way, as it is written, None where there is none."""
    span = _CURRENT.get()
    return None if span is None or span.trace.is_over else f"{span.trace.trace_id:032x}"


def outgoing() -> Iterable[tuple[str, str]]:
    """Return the headers that name the open span to a server, also where nothing is recorded."""
    span = _CURRENT.get()
    if span is None or span.trace.is_over:
        return ()
    trace = span.trace
    told = (
        ("traceparent", traceparent(trace.trace_id, span.id, sampled=trace.sampled)),
        ("tracestate", trace.state),
        ("baggage", trace.baggage),
    )
    return [header for header in told if header[1]]


@contextmanager
def untraced() -> Iterator[None]:
    """Begin tasks inside the block that are of no trace: nobody waits for them."""
    before = _CURRENT.get()
    _CURRENT.set(None)
    try:
        yield
    finally:
        _CURRENT.set(before)
