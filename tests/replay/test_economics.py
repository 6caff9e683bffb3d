"""Time and money of work, by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cascade.replay.economics import Device, Terms, Work, break_even, busy_ms, cost, in_time, latency_ms

_CPU = Device("cpu", 36.0, 0.10)
_GPU = Device("gpu", 1.2, 1.10)


def _work(small: list[int], large: list[int], rounds: list[int], measured: tuple[list[float], list[float]]) -> Work:
    calls = np.array(rounds)
    return Work(
        pairs={"small": np.array(small), "large": np.array(large)},
        calls={"small": (np.array(small) > 0).astype(int), "large": calls},
        measured_ms={"small": np.array(measured[0]), "large": np.array(measured[1])},
    )


_WORK = _work([50, 50, 0], [20, 0, 10], [2, 0, 1], ([25.0, 30.0, math.nan], [240.0, math.nan, math.nan]))
_TERMS = Terms(
    ms_per_pair={"small": 0.5, "large": 12.0},
    ms_per_call=5.0,
    deadline_ms=100.0,
    price_per_hour={"small": 0.36, "large": 3.6},
    utilisation=0.5,
)


def test_a_latency_is_the_pairs_and_the_calls_of_each_round() -> None:
    """50 x .5 + 5 + 20 x 12 + 2 x 5; 50 x .5 + 5; 10 x 12 + 5."""
    assert latency_ms(_WORK, _TERMS).tolist() == [280.0, 30.0, 125.0]


def test_what_is_given_stands_in_for_what_was_measured() -> None:
    """A stage that is not given is as the table has it; one with nothing to do takes no time, told or not."""
    assert busy_ms(_WORK, _TERMS, "large").tolist() == [240.0, 0.0, 120.0]
    measured = Terms()
    assert busy_ms(_WORK, measured, "small").tolist() == [25.0, 30.0, 0.0]
    large = busy_ms(_WORK, measured, "large")
    assert large[:2].tolist() == [240.0, 0.0]
    assert math.isnan(large[2])


def test_a_query_is_in_time_up_to_its_deadline() -> None:
    """Without a deadline, or without a time, that is not told."""
    assert in_time(_WORK, _TERMS).tolist() == [0.0, 1.0, 0.0]
    assert in_time(_WORK, replace(_TERMS, deadline_ms=125.0)).tolist() == [0.0, 1.0, 1.0]
    assert np.isnan(in_time(_WORK, replace(_TERMS, deadline_ms=None))).all()
    assert np.isnan(in_time(_WORK, replace(_TERMS, ms_per_pair={}))).tolist() == [False, False, True]


def test_a_query_costs_the_hours_that_are_paid_for() -> None:
    """25 ms of .36 and 240 ms of 3.60 an hour, busy half of the time; a call keeps nothing busy."""
    hour = 3_600_000.0
    assert cost(_WORK, _TERMS) == pytest.approx(
        [(25 * 0.36 + 240 * 3.6) / hour / 0.5, 25 * 0.36 / hour / 0.5, 120 * 3.6 / hour / 0.5]
    )


def test_a_stage_with_nothing_to_do_needs_no_price() -> None:
    """One that has work and no price makes the cost of that query untold."""
    spent = cost(_WORK, replace(_TERMS, price_per_hour={"small": 0.36}))
    assert np.isnan(spent).tolist() == [True, False, True]


def test_terms_on_a_device_are_the_devices_for_the_large_stage() -> None:
    """The small stage stays where it is."""
    terms = _TERMS.on(_GPU)
    assert (terms.ms_per_pair, terms.price_per_hour) == ({"small": 0.5, "large": 1.2}, {"small": 0.36, "large": 1.1})


def test_two_devices_break_even_in_price_and_in_load() -> None:
    """30 times as fast at 11 times the price: one fast one costs as eleven slow ones, which ten times 60,000 need."""
    found = break_even(_GPU, _CPU, 0.6)
    assert (found.slow, found.fast) == (_CPU, _GPU)
    assert found.speed_up == pytest.approx(30.0)
    assert found.price == pytest.approx(3.0)
    assert found.pairs_per_hour == pytest.approx(10 * 0.6 * 3_600_000 / 36)
    assert found.per_million == pytest.approx({"cpu": 36e6 / 3.6e6 / 0.6 * 0.1, "gpu": 1.2e6 / 3.6e6 / 0.6 * 1.1})
    assert found.cheaper == "gpu"


@pytest.mark.parametrize(
    ("slow", "fast", "load", "cheaper"),
    [
        ((10.0, 1.0), (5.0, 1.0), 0.0, "fast"),
        ((10.0, 1.0), (5.0, 0.5), 0.0, "fast"),
        ((10.0, 1.0), (5.0, 2.0), 360_000.0, "equal"),
        ((10.0, 1.0), (5.0, 3.0), None, "slow"),
        ((10.0, 0.0), (5.0, 3.0), None, "slow"),
        ((10.0, 1.0), (4.0, 2.6), 720_000.0, "slow"),
    ],
)
def test_a_break_even_may_be_at_once_or_never(
    slow: tuple[float, float], fast: tuple[float, float], load: float | None, cheaper: str
) -> None:
    """Not dearer: at once. So dear that one is full before: never. In between whole instances count."""
    found = break_even(Device("slow", *slow), Device("fast", *fast), 1.0)
    assert found.pairs_per_hour == (None if load is None else pytest.approx(load))
    assert found.cheaper == cheaper


_figures = st.floats(0.1, 100.0)


@given(_figures, _figures, _figures, _figures, st.floats(0.1, 1.0), st.floats(0.001, 0.999))
def test_at_the_break_even_load_whole_instances_cost_as_much(
    slow_ms: float, fast_ms: float, slow_price: float, fast_price: float, utilisation: float, part: float
) -> None:
    """Above it one fast instance costs no more than the slow ones; in the step below it, it costs more."""
    found = break_even(Device("a", slow_ms, slow_price), Device("b", fast_ms, fast_price), utilisation)
    carries = utilisation * 3_600_000 / found.slow.ms_per_pair
    if found.pairs_per_hour is None:
        return
    needed_above = math.floor(found.pairs_per_hour / carries + 1e-6) + 1
    assert needed_above * found.slow.price_per_hour >= found.fast.price_per_hour * (1 - 1e-6)
    if found.pairs_per_hour:
        needed_below = math.ceil((found.pairs_per_hour - part * carries) / carries)
        assert needed_below * found.slow.price_per_hour < found.fast.price_per_hour * (1 + 1e-6)
