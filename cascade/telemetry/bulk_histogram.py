"""A histogram that takes many values at once: a request has a hundred pairs, and each would cost a lock of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from threading import Lock

import numpy as np
import numpy.typing as npt
from prometheus_client import Metric
from prometheus_client.metrics_core import HistogramMetricFamily
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

__all__ = ["BulkHistogram"]


@dataclass(slots=True)
class _Series:
    """Values by bucket, the last for those above every bound, and their sum."""

    counts: npt.NDArray[np.int64]
    total: float = 0.0


class BulkHistogram(Collector):
    """Count values by bucket under labels. ``bounds`` rise; a value equal to one is in its bucket. Safe in threads."""

    def __init__(self, name: str, what: str, labels: Sequence[str], bounds: Sequence[float]) -> None:
        self._name = name
        self._what = what
        self._labels = tuple(labels)
        self._bounds = np.array(bounds, dtype=np.float64)
        self._le = [floatToGoString(bound) for bound in (*bounds, float("inf"))]  # type: ignore[no-untyped-call]
        self._series: dict[tuple[str, ...], _Series] = {}
        self._lock = Lock()

    def show(self, *labels: str) -> None:
        """Show a series from now on, at nothing where it had no value yet."""
        with self._lock:
            self._of(labels)

    def add(self, values: Sequence[float], *labels: str) -> None:
        """Count values, all under the same labels."""
        found = np.asarray(values, dtype=np.float64)
        places = np.bincount(self._bounds.searchsorted(found), minlength=len(self._le))
        with self._lock:
            series = self._of(labels)
            series.counts += places
            series.total += float(found.sum())

    def _of(self, labels: tuple[str, ...]) -> _Series:
        series = self._series.get(labels)
        if series is None:
            if len(labels) != len(self._labels):
                raise ValueError(f"{self._name} has the labels {', '.join(self._labels)}")
            series = self._series[labels] = _Series(np.zeros(len(self._le), dtype=np.int64))
        return series

    def describe(self) -> Iterator[Metric]:
        """Yield the family without its series."""
        yield HistogramMetricFamily(self._name, self._what, labels=self._labels)

    def collect(self) -> Iterator[Metric]:
        """Yield the family with all series."""
        family = HistogramMetricFamily(self._name, self._what, labels=self._labels)
        with self._lock:
            told = [(labels, series.counts.cumsum().tolist(), series.total) for labels, series in self._series.items()]
        for labels, below, total in told:
            family.add_metric(labels, [(le, float(count)) for le, count in zip(self._le, below, strict=True)], total)
        yield family
