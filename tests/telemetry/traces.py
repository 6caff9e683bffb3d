"""Traces that are kept where a test looks."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from cascade.telemetry.span_schema import SpanName
from cascade.telemetry.spans import Span
from cascade.telemetry.tracer import Sampling, Tracer

__all__ = ["Traces"]


@dataclass
class Traces:
    """Every trace that is exported, and ``tracer``, which begins them. ``sampling`` are fields of its rules."""

    sampling: dict[str, Any] = field(default_factory=dict)
    seed: int = 1
    kept: list[list[Span]] = field(default_factory=list)
    left_out: int = 0

    @property
    def tracer(self) -> Tracer:
        """Return a tracer that draws from the seed."""
        source = random.Random(self.seed)  # noqa: S311 - ids of a test
        return Tracer(Sampling(**self.sampling), self._offer, bits=source.getrandbits, draw=source.random)

    def _offer(self, spans: Sequence[Span], left_out: int) -> None:
        self.kept.append(list(spans))
        self.left_out += left_out

    @property
    def only(self) -> list[Span]:
        """Return the spans of the one trace that there is."""
        (spans,) = self.kept
        return spans

    def named(self, name: SpanName) -> list[Span]:
        """Return the spans of a name, of all traces."""
        return [span for spans in self.kept for span in spans if span.name is name]

    def one(self, name: SpanName) -> Span:
        """Return the one span of a name."""
        (span,) = self.named(name)
        return span

    def parents(self) -> dict[SpanName, set[SpanName | None]]:
        """Return of each name under which names its spans stand."""
        found: dict[SpanName, set[SpanName | None]] = {}
        for spans in self.kept:
            names = {span.id: span.name for span in spans}
            for span in spans:
                above = None if span.parent_id is None else names.get(span.parent_id)
                found.setdefault(span.name, set()).add(above)
        return found
