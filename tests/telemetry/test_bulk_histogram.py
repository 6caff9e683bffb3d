"""A histogram of many values at once says what one of single values says."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Histogram, generate_latest

from cascade.telemetry.bulk_histogram import BulkHistogram

_BOUNDS = (1, 2.5, 10)
_values = st.lists(st.sampled_from((0.0, 0.5, 1.0, 1.5, 2.5, 3.0, 10.0, 11.0, 1e6)), max_size=20)


def _bulk() -> tuple[BulkHistogram, CollectorRegistry]:
    made, registry = BulkHistogram("h", "What it is", ("stage",), _BOUNDS), CollectorRegistry()
    registry.register(made)
    return made, registry


@given(st.lists(_values, max_size=4))
def test_it_prints_what_single_observations_print(batches: list[list[float]]) -> None:
    """Values at a bound are in its bucket; those above all are counted and summed."""
    made, registry = _bulk()
    single = CollectorRegistry()
    histogram = Histogram("h", "What it is", ("stage",), buckets=_BOUNDS, registry=single)
    for values in batches:
        made.add(values, "small")
        for value in values:
            histogram.labels("small").observe(value)
    if batches:
        histogram.labels("small")
    lines = [line for line in generate_latest(single).splitlines() if b"_created" not in line]
    assert generate_latest(registry).splitlines() == lines


def test_a_series_is_shown_at_nothing() -> None:
    """So that the first value counts in a rate."""
    made, registry = _bulk()
    made.show("large")
    assert registry.get_sample_value("h_count", {"stage": "large"}) == 0
    assert registry.get_sample_value("h_bucket", {"stage": "large", "le": "+Inf"}) == 0


def test_labels_are_those_that_were_declared() -> None:
    """Another number of them is a fault where it happens, not where metrics are read."""
    made, _ = _bulk()
    with pytest.raises(ValueError, match="h has the labels stage"):
        made.add((1.0,), "small", "measured")


def test_threads_add_up() -> None:
    """Nothing is lost where several count at once."""
    made, registry = _bulk()
    with ThreadPoolExecutor(4) as threads:
        for _ in range(400):
            threads.submit(made.add, (1.0, 3.0), "small")
    assert registry.get_sample_value("h_count", {"stage": "small"}) == 800
    assert registry.get_sample_value("h_sum", {"stage": "small"}) == 1600
