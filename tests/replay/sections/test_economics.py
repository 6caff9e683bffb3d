"""Time and money in a report."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from cascade.metrics import Gain
from cascade.policy.depth_rules import FixedDepth
from cascade.policy.escalation_rules import NoEscalation, StaticEscalation
from cascade.policy.release import Limits
from cascade.replay.economics import Device, Terms
from cascade.replay.intervals import resampled
from cascade.replay.policy import Policy
from cascade.replay.queries import replayed
from cascade.replay.question import Question
from cascade.replay.sections import economics, levels
from tests.replay.made import ROLES, made_table

_LEVELS: dict[str, Policy | None] = {
    "normal": Policy(StaticEscalation(kind="static", top_m=5), FixedDepth(depth=20), Limits()),
    "small": Policy(NoEscalation(), FixedDepth(depth=20), Limits()),
    "nothing": None,
}
_NAMES = [*_LEVELS]
_TERMS = Terms(
    ms_per_pair={"small": 0.5, "large": 12.0},
    ms_per_call=5.0,
    deadline_ms=100.0,
    price_per_hour={"small": 0.36, "large": 3.6},
    utilisation=0.5,
)
_CPU, _GPU = Device("cpu", 36.0, 0.10), Device("gpu", 1.2, 1.10)
_DRAWN = resampled(40, 1000, 0)


def _columns(**attributes: tuple[float, ...]) -> dict[str, Any]:
    queries = replayed([made_table(attributes=attributes)], ROLES, 5, Gain.LINEAR).queries
    return {**economics.columns(queries), **levels.columns(queries, _LEVELS, Question(ROLES, k=5))}


_UNTIMED = _columns()


def test_latencies_are_told_against_always_large_at_equal_service_times() -> None:
    """20 x 12 + 5 always; 20 x .5 + 5 + 5 x 12 + 5 by the policy; 15 without escalation, 0 without a stage."""
    told = economics.latency_told(_UNTIMED, _NAMES, _TERMS, _DRAWN)
    assert {name: told["always_large"][name] for name in ("p50", "p95", "p99")} == {"p50": 245, "p95": 245, "p99": 245}
    assert [told["policy"][name] for name in ("p50", "p99", "in_time")] == [80, 80, 1.0]
    assert [(row["name"], row["p95"]) for row in told["levels"]] == [("normal", 80), ("small", 15), ("nothing", 0)]
    assert told["always_large"]["in_time"] == 0
    assert told["deadline_ms"] == 100
    assert told["service_times"] == {
        "small": {"ms_per_pair": 0.5, "source": "given"},
        "large": {"ms_per_pair": 12.0, "source": "given"},
        "ms_per_call": 5.0,
    }


def test_the_large_stages_seconds_are_told_with_what_is_saved() -> None:
    """240 ms a query are 240 s for 1,000; five of twenty pairs save three quarters."""
    told = economics.latency_told(_UNTIMED, _NAMES, _TERMS, _DRAWN)["large_seconds_per_1000"]
    assert (told["always_large"], told["policy"], told["saved"]) == (240, 60, 0.75)
    assert told["intervals"]["saved"] == [0.75, 0.75]


def test_what_a_table_measured_is_what_counts_where_nothing_is_given() -> None:
    """Its own milliseconds of the pairs that were sent, and their mean."""
    columns = _columns(ms_small=(0.5,) * 800, ms_large=tuple(2.0 if row < 400 else 4.0 for row in range(800)))
    told = economics.latency_told(columns, _NAMES, Terms(), _DRAWN)
    assert [told["always_large"][name] for name in ("p50", "p95")] == [40, 80]
    assert told["policy"]["p99"] == 30
    assert told["service_times"]["large"] == {"ms_per_pair": 3.0, "source": "table"}
    assert told["policy"]["reasons"]["in_time"] == "no deadline is told"
    assert economics.latency_told(columns, [], Terms(), _DRAWN)["service_times"]["small"]["ms_per_pair"] is None


def test_what_is_not_told_has_no_figure_and_a_reason() -> None:
    """Neither given nor measured: no time, no share in time, no cost; but no stage takes no time at all."""
    why = "ms of the large stage: neither given nor in the table for all pairs of 40 queries"
    terms = replace(_TERMS, ms_per_pair={"small": 0.5})
    told = economics.latency_told(_UNTIMED, _NAMES, terms, _DRAWN)
    assert told["policy"]["p95"] is None
    assert set(told["policy"]["reasons"].values()) == {why}
    assert told["levels"][1]["p95"] == 15
    assert told["large_seconds_per_1000"]["reasons"]["saved"] == why
    assert told["service_times"]["large"] == {"ms_per_pair": None, "source": "not told"}
    rows = economics.cost_told(_UNTIMED, _NAMES, terms, _DRAWN)["rows"]
    assert rows[1]["per_1000"] is None
    assert rows[1]["reasons"]["per_1000"] == why


def test_one_pair_that_was_not_measured_leaves_its_query_untold() -> None:
    """A mean of the others would be an invention."""
    columns = _columns(ms_small=(0.5,) * 800, ms_large=(float("nan"), *(2.0,) * 799))
    told = economics.latency_told(columns, _NAMES, Terms(), _DRAWN)
    assert told["always_large"]["reasons"]["p50"].endswith("for all pairs of 1 queries")


def test_without_a_policy_always_large_is_told_alone() -> None:
    """The policy's figures have a reason."""
    told = economics.latency_told(_UNTIMED, [], _TERMS, _DRAWN)
    assert (told["always_large"]["p50"], told["levels"]) == (245, [])
    assert told["policy"]["reasons"]["p50"] == "no policy was replayed"
    assert told["large_seconds_per_1000"]["always_large"] == 240
    assert told["large_seconds_per_1000"]["reasons"]["saved"] == "no policy was replayed"
    untimed = economics.latency_told(_UNTIMED, [], Terms(), _DRAWN)
    assert untimed["large_seconds_per_1000"]["always_large"] is None


def _row(told: dict[str, Any], name: str, device: str | None = None) -> dict[str, Any]:
    return next(row for row in told["rows"] if (row["name"], row["device"]) == (name, device))


def test_costs_are_told_by_level_and_device() -> None:
    """Queries in time bear what late ones cost; a device is other milliseconds at another price."""
    told = economics.cost_told(_UNTIMED, _NAMES, replace(_TERMS, devices=(_CPU, _GPU)), _DRAWN)
    a_thousand = 1000 / 3_600_000 / 0.5
    assert _row(told, "normal")["per_1000_in_time"] == pytest.approx((10 * 0.36 + 60 * 3.6) * a_thousand)
    assert _row(told, "small")["per_1000"] == pytest.approx(10 * 0.36 * a_thousand)
    assert _row(told, "nothing")["per_1000_in_time"] == 0
    gpu = _row(told, "always-large", "gpu")
    assert gpu["in_time"] == 1.0
    assert gpu["per_1000_in_time"] == pytest.approx(24 * 1.10 * a_thousand)
    late = _row(told, "always-large", "cpu")
    assert (late["in_time"], late["per_1000_in_time"]) == (0, None)
    assert late["reasons"] == {"per_1000_in_time": "no query is answered in time"}
    assert late["per_1000"] == pytest.approx(720 * 0.10 * a_thousand)


def test_a_cost_needs_a_price_and_a_deadline() -> None:
    """There is no price list, and no deadline of its own."""
    told = economics.cost_told(_UNTIMED, _NAMES, replace(_TERMS, price_per_hour={}), _DRAWN)
    why = "no price is told for the small and the large stage"
    assert _row(told, "normal")["reasons"] == {"per_1000": why, "per_1000_in_time": why}
    told = economics.cost_told(_UNTIMED, _NAMES, replace(_TERMS, deadline_ms=None), _DRAWN)
    assert _row(told, "normal")["per_1000"] == pytest.approx(0.122)
    assert _row(told, "normal")["reasons"]["per_1000_in_time"] == "no deadline is told"


def test_devices_break_even_at_a_load_of_queries_that_depends_on_the_level() -> None:
    """Five pairs a query reach it later than twenty, and no pairs never."""
    (found,) = economics.cost_told(_UNTIMED, _NAMES, replace(_TERMS, devices=(_GPU, _CPU)), _DRAWN)["break_even"]
    assert (found["slow"], found["fast"], found["speed_up"]) == ("cpu", "gpu", 30)
    assert (found["break_even_price_per_hour"], found["price_ratio"]) == (3, 11)
    assert found["pairs_per_hour"] == 10 * 0.5 * 3_600_000 / 36
    assert found["queries_per_hour"]["always-large"] == 25_000
    assert found["queries_per_hour"]["normal"] == 100_000
    assert found["queries_per_hour"]["small"] is None
    assert found["queries_per_hour"]["reasons"]["small"] == "nothing goes to the large stage"
    assert found["cheaper_when_full"] == "gpu"


def test_a_device_that_never_pays_says_so() -> None:
    """Twice as fast at five times the price."""
    terms = replace(_TERMS, devices=(Device("a", 10, 1), Device("b", 5, 5), Device("c", 20, 0)))
    first, *_, last = economics.cost_told(_UNTIMED, _NAMES, terms, _DRAWN)["break_even"]
    assert first["pairs_per_hour"] is None
    assert first["queries_per_hour"]["reasons"]["normal"] == "one b is full before it costs as little as a"
    assert last["price_ratio"] is None


def test_what_is_told_is_plain_data() -> None:
    """A report holds finite numbers only."""
    terms = replace(_TERMS, devices=(_CPU, _GPU))
    told = [tell(_UNTIMED, _NAMES, terms, _DRAWN) for tell in (economics.latency_told, economics.cost_told)]
    assert json.loads(json.dumps(told, allow_nan=False)) == told
