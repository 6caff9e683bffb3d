"""Begin the trace of a request, and decide whether it is exported: at its beginning by a share, at its end by what it was."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from cascade.telemetry.span_schema import Attribute, SpanName
from cascade.telemetry.spans import Span, Trace
from cascade.telemetry.w3c import Parent, baggage_of, parent_of

__all__ = ["Keep", "Sampling", "Tracer"]

_IDS: Final = 2**64
_BY_RATIO: Final = "ratio"
_BY_PARENT: Final = "parent"


class Keep(StrEnum):
    """What a request may be kept for at its end, whatever the share says. The list is closed."""

    FAILED = "failed"
    DEGRADED = "degraded"
    ESCALATED = "escalated"
    SLOW = "slow"


@dataclass(frozen=True, slots=True)
class Sampling:
    """Which traces are exported.

    ``ratio`` is the share of those that no caller has decided about. A caller that does not sample is followed; one that
    does is where ``trust_parent`` says so, else the share is drawn: by the trace's id of a trace that begins here, by
    chance of one whose id a caller chose. ``keep`` is what a trace is exported for all the same, ``slow_ms`` what is slow.
    ``baggage`` tells whether a caller's is passed on.
    """

    ratio: float = 1.0
    trust_parent: bool = False
    keep: frozenset[Keep] = frozenset()
    slow_ms: float | None = None
    baggage: bool = False


class Tracer:
    """Begin traces, and hand those that are exported to ``offer``, with the number of spans that were left out.

    ``bits`` gives random bits and ``draw`` numbers in [0, 1); ``clock_ns`` runs evenly, and ``wall_ns`` tells the time
    since the epoch, once at the beginning of each trace.
    """

    def __init__(
        self,
        sampling: Sampling,
        offer: Callable[[Sequence[Span], int], None],
        *,
        bits: Callable[[int], int] = random.getrandbits,
        draw: Callable[[], float] = random.random,
        clock_ns: Callable[[], int] = time.monotonic_ns,
        wall_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self._sampling = sampling
        self._offer = offer
        self._bits = bits
        self._draw = draw
        self._clock_ns = clock_ns
        self._wall_ns = wall_ns

    def begin(self, *, parents: Sequence[str] = (), states: Sequence[str] = (), baggage: Sequence[str] = ()) -> Span:
        """Return the root span of a request, to be entered at once.

        ``parents``, ``states`` and ``baggage`` are the values of the headers ``traceparent``, ``tracestate`` and
        ``baggage``. Where the first names no span, the trace is a new one.
        """
        sampling = self._sampling
        parent = parent_of(parents, states) if parents else None
        trace_id = parent.trace_id if parent is not None else self._bits(128) or 1
        sampled = self._is_sampled(parent, trace_id)
        offset_ns = self._wall_ns() - self._clock_ns()
        trace = Trace(
            trace_id,
            sampled=sampled,
            records=sampled or bool(sampling.keep),
            new_id=lambda: self._bits(64) or 1,
            now_ns=lambda: self._clock_ns() + offset_ns,
            ended=self._ended,
            state="" if parent is None else parent.state,
            baggage=baggage_of(baggage) if sampling.baggage and baggage else "",
        )
        root = Span(trace, SpanName.RERANK, None if parent is None else parent.span_id, is_root=True)
        by_parent = sampled and parent is not None and sampling.trust_parent
        root.set(Attribute.SAMPLED_BY, _BY_PARENT if by_parent else _BY_RATIO)
        return root

    def _is_sampled(self, parent: Parent | None, trace_id: int) -> bool:
        sampling = self._sampling
        if parent is None:
            return trace_id % _IDS < sampling.ratio * _IDS
        return parent.sampled and (sampling.trust_parent or self._draw() < sampling.ratio)

    def _ended(self, root: Span) -> None:
        trace = root.trace
        spans = trace.taken()
        if not trace.records:
            return
        if not trace.sampled:
            why = self._kept_for(root)
            if why is None:
                return
            root.set(Attribute.SAMPLED_BY, why)
        self._offer(spans, trace.left_out)

    def _kept_for(self, root: Span) -> Keep | None:
        """Return the first that a trace is kept for."""
        sampling, told = self._sampling, root.attributes
        slow_ms = sampling.slow_ms
        found = {
            Keep.FAILED: root.failed,
            Keep.DEGRADED: told.get(Attribute.DEGRADED) is True,
            Keep.ESCALATED: bool(told.get(Attribute.ESCALATED)),
            Keep.SLOW: slow_ms is not None and root.ended_ns - root.began_ns >= slow_ms * 1e6,
        }
        return next((why for why, is_so in found.items() if is_so and why in sampling.keep), None)
