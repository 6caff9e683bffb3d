"""Declare metrics: name, kind, labels and what each promises, in one step."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from cascade.telemetry.bulk_histogram import BulkHistogram

__all__ = ["EXPERIMENTAL", "SECONDS", "STABLE", "Declared", "Declaring", "Stability"]

Value = TypeVar("Value", bound=str)


class Stability(StrEnum):
    """What a metric promises. docs/metrics.md says it in words."""

    STABLE = "STABLE"
    EXPERIMENTAL = "EXPERIMENTAL"


STABLE: Final = Stability.STABLE
EXPERIMENTAL: Final = Stability.EXPERIMENTAL

SECONDS: Final = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)


@dataclass(frozen=True, slots=True)
class Declared:
    """A metric as it is declared. ``name`` is the one that queries use; a histogram's series have their suffixes behind it."""

    name: str
    kind: str
    labels: tuple[str, ...]
    what: str
    stability: Stability


class Declaring:
    """A registry, and what was declared in it, in order. A name is declared once."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.declared: list[Declared] = []

    def counter(self, stability: Stability, name: str, what: str, labels: Sequence[str] = ()) -> Counter:
        """Declare a counter; ``name`` is without the ``_total`` that its series has."""
        self._note(f"{name}_total", "counter", labels, what, stability)
        return Counter(name, what, labels, registry=self.registry)

    def counters(
        self, stability: Stability, name: str, what: str, label: str, values: Iterable[Value]
    ) -> dict[Value, Counter]:
        """Declare a counter of one label, and return its child for each value: looking one up costs more than counting."""
        counter = self.counter(stability, name, what, [label])
        return {value: counter.labels(value) for value in values}

    def gauge(self, stability: Stability, name: str, what: str, labels: Sequence[str] = ()) -> Gauge:
        """Declare a gauge."""
        self._note(name, "gauge", labels, what, stability)
        return Gauge(name, what, labels, registry=self.registry)

    def histogram(
        self, stability: Stability, name: str, what: str, labels: Sequence[str] = (), *, buckets: Sequence[float]
    ) -> Histogram:
        """Declare a histogram of one value at a time."""
        self._note(name, "histogram", labels, what, stability)
        return Histogram(name, what, labels, buckets=buckets, registry=self.registry)

    def histograms(
        self,
        stability: Stability,
        name: str,
        what: str,
        label: str,
        values: Iterable[Value],
        *,
        buckets: Sequence[float],
    ) -> dict[Value, Histogram]:
        """Declare a histogram of one label, and return its child for each value."""
        histogram = self.histogram(stability, name, what, [label], buckets=buckets)
        return {value: histogram.labels(value) for value in values}

    def bulk_histogram(
        self, stability: Stability, name: str, what: str, labels: Sequence[str], *, buckets: Sequence[float]
    ) -> BulkHistogram:
        """Declare a histogram of many values at a time."""
        self._note(name, "histogram", labels, what, stability)
        made = BulkHistogram(name, what, labels, buckets)
        self.registry.register(made)
        return made

    def _note(self, name: str, kind: str, labels: Sequence[str], what: str, stability: Stability) -> None:
        self.declared.append(Declared(name, kind, tuple(labels), what, stability))
