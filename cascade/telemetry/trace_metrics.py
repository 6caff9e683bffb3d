"""Metrics of what becomes of spans."""

from __future__ import annotations

from cascade.telemetry.declared import EXPERIMENTAL, Declaring
from cascade.telemetry.trace_log import SpanDrop

__all__ = ["TraceMetrics"]


class TraceMetrics:
    """Count spans that a collector took, and those that are lost."""

    def __init__(self, declare: Declaring) -> None:
        self.exported = declare.counter(EXPERIMENTAL, "cascade_spans_exported", "Spans that a collector took")
        self._dropped = declare.counters(
            EXPERIMENTAL,
            "cascade_spans_dropped",
            "Spans of sampled requests that no collector took, by reason: queue_full, too many waited; too_many in one "
            "request; refused by the collector; not_taken, it was away, slow or failing; fault of ours; shutdown",
            "reason",
            SpanDrop,
        )

    def drop(self, reason: SpanDrop, count: int) -> None:
        """Count spans that were not exported."""
        self._dropped[reason].inc(count)
