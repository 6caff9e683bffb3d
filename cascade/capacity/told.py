"""A plan as plain data: ``capacity.json``."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from cascade.capacity.demand import Unit
from cascade.capacity.headroom import Headroom, Situation
from cascade.capacity.plan import LevelPlan, Plan, StageLoad
from cascade.capacity.traffic import Arrivals

__all__ = ["PLAN_VERSION", "told"]

PLAN_VERSION: Final = 1


def told(plan: Plan, conditions: Mapping[str, Any]) -> dict[str, Any]:
    """Return a plan as plain data: numbers finite, to nine digits, None where there is none."""
    moments = _moments(plan.arrivals)
    return {
        "plan": "cascade capacity",
        "version": PLAN_VERSION,
        "conditions": {**conditions, "headroom": _headroom(plan.headroom)},
        "notes": list(plan.notes),
        "arrivals": {
            "mean_qps": _number(plan.arrivals.mean_qps),
            "peak_qps": _number(plan.arrivals.peak_qps),
            "peak_standard_error_qps": _number(plan.arrivals.peak_error_qps),
            "burst_factor": _number(plan.arrivals.burst_factor),
            "planned_qps": _number(plan.arrivals.planned_qps),
            "windows": len(plan.arrivals.windows),
            "seconds": _number(math.fsum(window.seconds for window in plan.arrivals.windows)),
        },
        "levels": [_level(level, plan, moments) for level in plan.levels],
        "carried": _carried(plan),
    }


def _moments(arrivals: Arrivals) -> dict[str, float]:
    return {"mean": arrivals.mean_qps, "peak": arrivals.peak_qps, "planned": arrivals.planned_qps}


def _headroom(headroom: Headroom) -> dict[str, Any]:
    return {
        "utilisation": _number(headroom.utilisation),
        "most_utilisation": _number(headroom.most_utilisation),
        "failures": headroom.failures,
        "max_unavailable": str(headroom.unavailable),
        "failure_during_update": headroom.at_once,
    }


def _level(level: LevelPlan, plan: Plan, moments: Mapping[str, float]) -> dict[str, Any]:
    planned = plan.arrivals.planned_qps
    return {
        "name": level.name,
        "stages": {str(each.stage): _stage(each, moments) for each in level.stages},
        "pools": {
            str(pool): {
                "busy_seconds_per_query": _number(seconds),
                "replicas": level.replicas[pool],
                "replicas_for": {
                    str(each): plan.headroom.replicas(planned * seconds, each) for each in plan.headroom.situations
                },
                "utilisation": {
                    name: _utilisations(qps * seconds, level.replicas[pool], plan.headroom)
                    for name, qps in moments.items()
                },
            }
            for pool, seconds in level.seconds.items()
        },
    }


def _stage(stage: StageLoad, moments: Mapping[str, float]) -> dict[str, Any]:
    unit = stage.demand.unit
    return {
        "pool": None if stage.pool is None else str(stage.pool),
        "unit": str(unit),
        f"{unit}_per_query": _number(stage.pairs),
        "pairs_from": str(stage.demand.basis),
        "pairs_told_by": stage.demand.detail,
        **(_of_pairs(stage) if unit is Unit.PAIRS else {}),
        "at": {
            name: {
                "qps": _number(qps),
                f"{unit}_per_s": _number(qps * stage.pairs),
                **(_tokens_at(stage, qps) if unit is Unit.PAIRS else {}),
            }
            for name, qps in moments.items()
        },
    }


def _of_pairs(stage: StageLoad) -> dict[str, Any]:
    return {
        "tokens_per_pair": _number(stage.work.tokens),
        "computed_tokens_per_pair": _number(stage.work.computed),
        "sequences_per_pair": _number(stage.work.sequences),
        "share_over_max_length": _number(stage.work.over_share),
    }


def _tokens_at(stage: StageLoad, qps: float) -> dict[str, Any]:
    return {
        "tokens_per_s": _number(qps * stage.tokens),
        "computed_tokens_per_s": _number(qps * stage.computed_tokens),
    }


def _utilisations(load: float, replicas: int, headroom: Headroom) -> dict[str, float | None]:
    """Return busy share of the replicas up, by situation; None where none is up and there is load."""
    return {str(each): _utilisation(load, headroom.up(replicas, each)) for each in Situation}


def _utilisation(load: float, up: int) -> float | None:
    """Return the busy share of replicas that are up, above 1 where they cannot keep up; None where none is."""
    if not load:
        return 0.0
    return _number(load / up) if up else None


def _carried(plan: Plan) -> dict[str, Any]:
    """Return what the replicas at hand carry."""
    planned = plan.arrivals.planned_qps
    return {
        "replicas": {str(pool): count for pool, count in plan.have.items()},
        "replicas_from": "given" if plan.have_given else f"what level {plan.levels[0].name} needs",
        "levels": [_carried_at(level, plan) for level in plan.levels],
        "level_at_planned_qps": {
            **{str(each): plan.level_at(planned, each) for each in Situation},
            "all_planned_for": plan.level_at(planned),
        },
        "share_of_time": [{"level": name, "share": _number(share)} for name, share in plan.time_at().items()],
    }


def _carried_at(level: LevelPlan, plan: Plan) -> dict[str, Any]:
    safe, first = level.safe_qps(plan.have, plan.headroom)
    return {
        "name": level.name,
        "safe_qps": _finite(safe),
        "fails_first": None if first is None else str(first),
        "qps": {str(each): _finite(level.most_qps(plan.have, plan.headroom, each)[0]) for each in Situation},
        "utilisation": {
            str(pool): _utilisations(plan.arrivals.planned_qps * seconds, plan.have[pool], plan.headroom)
            for pool, seconds in level.seconds.items()
        },
    }


def _finite(value: float) -> float | None:
    """Return a rate, None for one without bound: no replica is needed."""
    return None if math.isinf(value) else _number(value)


def _number(value: float | None) -> float | None:
    """Return a number to nine significant digits: what lies beyond depends on the machine."""
    return None if value is None else float(f"{value:.9g}")
