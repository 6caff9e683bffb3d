"""``capacity.json``."""

from __future__ import annotations

from typing import Any

import orjson

from cascade.capacity.headroom import Headroom
from cascade.capacity.planning import PlannedLevel, make_plan
from cascade.capacity.told import told
from cascade.capacity.traffic import Window
from cascade.policy.levels import at_level, level_names
from tests.capacity.made import made_release, made_throughputs, made_traffic


def _told(have: dict[str, int] | None = None) -> dict[str, Any]:
    release = made_release(levels=[{"name": "normal"}, {"name": "off", "stages": "none"}])
    levels = [PlannedLevel(name, at_level(release, name)) for name in level_names(release)]
    traffic = made_traffic(windows=(Window(5.0, 60.0), Window(10.0, 60.0)))
    plan = make_plan(levels, traffic, made_throughputs(), Headroom(), have)
    read: dict[str, Any] = orjson.loads(orjson.dumps(told(plan, {"release": "r1"})))
    return read


def test_a_plan_is_told_whole() -> None:
    """Conditions, arrivals, and for each level work, replicas and what is busy when; by hand."""
    plan = _told()
    assert (plan["plan"], plan["version"]) == ("cascade capacity", 1)
    assert plan["conditions"] == {
        "release": "r1",
        "headroom": {
            "utilisation": 0.6,
            "most_utilisation": 0.85,
            "failures": 1,
            "max_unavailable": "25%",
            "failure_during_update": True,
        },
    }
    assert plan["arrivals"] == {
        "mean_qps": 7.5,
        "peak_qps": 10.0,
        "peak_standard_error_qps": None,
        "burst_factor": 1.0,
        "planned_qps": 10.0,
        "windows": 2,
        "seconds": 120.0,
    }
    normal, off = plan["levels"]
    assert off == {"name": "off", "stages": {}, "pools": {}}
    assert normal["stages"]["large"]["pairs_per_query"] == 20.0
    assert normal["stages"]["large"]["pairs_from"] == "constant"
    assert normal["stages"]["large"]["at"]["mean"] == {
        "qps": 7.5,
        "pairs_per_s": 150.0,
        "tokens_per_s": 15_000.0,
        "computed_tokens_per_s": 15_000.0,
    }
    assert normal["pools"]["large"] == {
        "busy_seconds_per_query": 0.2,
        "replicas": 5,
        "replicas_for": {"all_up": 4, "failure": 4, "update": 3, "failure_during_update": 5},
        "utilisation": {
            "mean": {"all_up": 0.3, "failure": 0.375, "update": 0.375, "failure_during_update": 0.5},
            "peak": {"all_up": 0.4, "failure": 0.5, "update": 0.5, "failure_during_update": 0.666666667},
            "planned": {"all_up": 0.4, "failure": 0.5, "update": 0.5, "failure_during_update": 0.666666667},
        },
    }


def test_what_replicas_carry_is_told() -> None:
    """Rates by situation; no bound is null, and no replica up is null too, not a number beyond all."""
    carried = _told({"small": 1, "large": 4})["carried"]
    assert (carried["replicas"], carried["replicas_from"]) == ({"small": 1, "large": 4}, "given")
    normal, off = carried["levels"]
    assert normal == {
        "name": "normal",
        "safe_qps": 0.0,
        "fails_first": "small",
        "qps": {"all_up": 12.0, "failure": 0.0, "update": 12.75, "failure_during_update": 0.0},
        "utilisation": {
            "small": {"all_up": 0.5, "failure": None, "update": 0.5, "failure_during_update": None},
            "large": {
                "all_up": 0.5,
                "failure": 0.666666667,
                "update": 0.666666667,
                "failure_during_update": 1.0,
            },
        },
    }
    assert (off["safe_qps"], off["fails_first"], off["utilisation"]) == (None, None, {})
    assert carried["level_at_planned_qps"] == {
        "all_up": "normal",
        "failure": "off",
        "update": "normal",
        "failure_during_update": "off",
        "all_planned_for": "off",
    }
    assert carried["share_of_time"] == [{"level": "off", "share": 1.0}]


def test_replicas_of_the_first_level_are_told_as_such() -> None:
    """Nobody takes them for what there is."""
    assert _told()["carried"]["replicas_from"] == "what level normal needs"


def test_a_pool_without_work_is_idle() -> None:
    """No replica is needed, and none being up is no fault."""
    levels = [PlannedLevel("normal", made_release(depth=0))]
    plan = told(make_plan(levels, made_traffic(), made_throughputs(), Headroom()), {})
    pool = plan["levels"][0]["pools"]["small"]
    assert (pool["replicas"], pool["utilisation"]["planned"]["failure"]) == (0, 0.0)
    assert plan["carried"]["levels"][0]["safe_qps"] is None
