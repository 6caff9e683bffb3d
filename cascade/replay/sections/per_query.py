"""The queries that the reference policy regrets most, with what it decided and why. Ids only, no text."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from cascade.decision import Action
from cascade.replay.columns import FloatArray
from cascade.replay.policy import Played
from cascade.replay.regret import Regret, largest_cause
from cascade.replay.report import number
from cascade.replay.sections.decided import ACTIONS

__all__ = ["MOST", "Facts", "columns", "told"]

MOST: Final = 1000
"""How many queries a report lists."""

_WHY: Final = ("margin", "entropy", "expected_loss")


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of each query (Q,): its id, table and slices, and what small, large and the policy made of it.

    ``pairs`` is what the policy sent. ``name`` is the policy's, ``policy`` or ``static``.
    """

    ids: Sequence[str]
    tables: Sequence[str]
    slices: Mapping[str, Sequence[str]]
    small: FloatArray
    large: FloatArray
    policy: FloatArray
    pairs: FloatArray
    name: str


def columns(played: Played | None) -> dict[str, NDArray[Any]]:
    """Return what the policy's first estimate said of each query (Q,), NaN and "" where it said nothing."""
    if played is None:
        return {}
    estimates = [step.estimates for step in played.steps]
    return {
        **{
            f"per_query.{name}": np.array([math.nan if one is None else getattr(one, name) for one in estimates])
            for name in _WHY
        },
        "per_query.misfit": np.array([step.misfit or "" for step in played.steps]),
    }


def told(columns: Mapping[str, NDArray[Any]], facts: Facts, regret: Regret) -> dict[str, Any]:
    """Return a row for each of the queries of the greatest regret, and how many are left out."""
    order = np.argsort(-np.round(regret.total, 12), kind="stable")[:MOST]
    causes = [None if cause is None else cause.value for cause in largest_cause(regret)]
    rows = [
        {
            "id": facts.ids[at],
            "table": facts.tables[at],
            **{name: values[at] or None for name, values in facts.slices.items()},
            **_decided(columns, facts, at),
            "pairs": int(facts.pairs[at]),
            "small": number(facts.small[at]),
            "large": number(facts.large[at]),
            facts.name: number(facts.policy[at]),
            "regret": number(regret.total[at]),
            "cause": causes[at],
        }
        for at in order.tolist()
    ]
    return {"per_query": rows, "per_query_left_out": len(facts.ids) - len(rows)}


def _decided(columns: Mapping[str, NDArray[Any]], facts: Facts, at: int) -> dict[str, Any]:
    """Return action, why, depth and rounds; static has one action, and no reason but its own number."""
    if "decided.action" not in columns:
        return {"action": Action.STATIC.value, "why": {}, "depth": None, "rounds": int(facts.pairs[at] > 0)}
    why = {name: float(columns[f"per_query.{name}"][at]) for name in _WHY}
    misfit = str(columns["per_query.misfit"][at])
    return {
        "action": ACTIONS[columns["decided.action"][at]].value,
        "why": {name: number(value) for name, value in why.items() if not math.isnan(value)}
        | ({"misfit": misfit} if misfit else {}),
        "depth": int(columns["decided.depth"][at]),
        "rounds": int(columns["decided.rounds"][at]),
    }
