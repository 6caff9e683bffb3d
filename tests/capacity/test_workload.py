"""Workload files."""

from __future__ import annotations

from typing import Any

import pytest

from cascade.capacity.distribution import Distribution
from cascade.capacity.traffic import Arrivals, OverLength, Window
from cascade.capacity.workload import traffic_of
from cascade.errors import ConfigError
from cascade.types import StageName


def _data(**changes: Any) -> dict[str, Any]:
    data = {"arrivals": {"mean_qps": 12, "peak_qps": 40.0}, "candidates": 100, "pair_tokens": 120}
    return data | changes


def test_bare_numbers_are_always_the_same() -> None:
    """Mean and peak alone have no windows; what is not told is not made up."""
    found = traffic_of(_data(), "w")
    assert found.arrivals == Arrivals(12.0, 40.0)
    assert (found.candidates, found.pair_tokens) == (Distribution.constant(100), Distribution.constant(120))
    assert (found.query_tokens, found.over_length, found.beside_share) == (None, {}, 1.0)


def test_a_peak_alone_is_the_mean_too() -> None:
    """Nothing tells of quieter hours."""
    assert traffic_of(_data(arrivals={"peak_qps": 3}), "w").arrivals.mean_qps == 3.0


def test_windows_tell_mean_and_peak() -> None:
    """The mean is by time; the burst stands above the busiest window."""
    windows = [{"qps": 10, "seconds": 300}, {"qps": 40, "seconds": 100}]
    found = traffic_of(_data(arrivals={"windows": windows, "burst_factor": 1.5}), "w").arrivals
    assert found.windows == (Window(10.0, 300.0), Window(40.0, 100.0))
    assert (found.mean_qps, found.peak_qps, found.planned_qps) == (17.5, 40.0, 60.0)
    assert found.grown(2.0) == Arrivals.of_windows((Window(20.0, 300.0), Window(80.0, 100.0)), 1.5)


def test_everything_else_is_read() -> None:
    """Histograms, quantiles, what is done with long pairs, and the share that is scored beside answers."""
    found = traffic_of(
        _data(
            candidates={"quantiles": [[0, 10], [1, 10]]},
            pair_tokens={"histogram": [[100, 3], [200, 1]]},
            query_tokens={"histogram": [[10, 1], [20, 1]]},
            over_length={"large": "windows"},
            record_sample=0.25,
        ),
        "w",
    )
    assert found.candidates.mean == 10.0
    assert found.pair_tokens.mean == 125.0
    assert found.query_tokens == 15.0
    assert found.over_length == {StageName.LARGE: OverLength.WINDOWS}
    assert found.beside_share == 0.25


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"arrivals": {}}, "w: arrivals: .*either peak_qps"),
        ({"arrivals": {"peak_qps": 0}}, "arrivals.peak_qps: Input should be greater than 0"),
        ({"arrivals": {"peak_qps": float("nan")}}, "arrivals.peak_qps: Input should be a finite number"),
        ({"arrivals": {"peak_qps": 1e13}}, "arrivals.peak_qps: Input should be less than or equal to 1000000000000"),
        ({"candidates": {"quantiles": [[0, 1], [1, 1e308]]}}, "candidates.quantiles.1.1: Input should be less than"),
        ({"candidates": {"histogram": [[1, 1e308], [2, 1e308]]}}, "candidates.histogram.0.1: Input should be less"),
        ({"arrivals": {"peak_qps": 1, "mean_qps": 2}}, "mean_qps is above peak_qps"),
        ({"arrivals": {"windows": [{"qps": 1, "seconds": 1}], "mean_qps": 2}}, "leave mean_qps out"),
        ({"arrivals": {"windows": [{"qps": 1, "seconds": 1}], "peak_qps": 2}}, "either peak_qps"),
        ({"arrivals": {"windows": [{"qps": 1, "seconds": 0}]}}, "arrivals.windows.0.seconds"),
        ({"arrivals": {"windows": [{"qps": 0, "seconds": 9}]}}, "no window has a query"),
        ({"arrivals": {"windows": []}}, "arrivals.windows"),
        ({"arrivals": {"peak_qps": 1, "burst_factor": 0.5}}, "arrivals.burst_factor"),
        ({"candidates": 0}, "values of the histogram are 1 or more"),
        ({"candidates": True}, "w: candidates"),
        ({"candidates": {}}, "exactly one of histogram and quantiles"),
        ({"candidates": {"histogram": [[1, 1]], "quantiles": [[0, 1], [1, 2]]}}, "exactly one of"),
        ({"candidates": {"histogram": [[5, 1], [5, 2]]}}, "given twice"),
        ({"candidates": {"histogram": [[5, -1], [6, 2]]}}, "weights 0 or more"),
        ({"candidates": {"histogram": [[5, 0]]}}, "all weights of the histogram are 0"),
        ({"candidates": {"quantiles": [[0, 1], [0.5, 9]]}}, "begin at probability 0 and end at 1"),
        ({"candidates": {"quantiles": [[0, 1], [0.5, 9], [0.5, 9], [1, 9]]}}, "probabilities must ascend"),
        ({"candidates": {"quantiles": [[0, 9], [1, 8]]}}, "values must not fall"),
        ({"candidates": {"quantiles": [[0, 0], [1, 8]]}}, "values of quantiles are 1 or more"),
        ({"over_length": {"retrieval": "windows"}}, "of the stages small and large"),
        ({"over_length": {"large": "split"}}, "over_length.large"),
        ({"record_sample": 0}, "record_sample"),
        ({"qps": 4}, "qps: Extra inputs are not permitted"),
    ],
)
def test_what_cannot_be_is_refused(changes: dict[str, Any], told: str) -> None:
    """The key and the rule are named, and never the value."""
    with pytest.raises(ConfigError, match=told):
        traffic_of(_data(**changes), "w")


@pytest.mark.parametrize("missing", ["arrivals", "candidates", "pair_tokens"])
def test_what_is_missing_is_named(missing: str) -> None:
    """None of the three can be guessed."""
    data = _data()
    del data[missing]
    with pytest.raises(ConfigError, match=f"w: {missing}: Field required"):
        traffic_of(data, "w")
