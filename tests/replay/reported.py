"""Whole reports of made tables, for what reads reports."""

from __future__ import annotations

from functools import cache
from typing import Any

from pydantic import TypeAdapter

from cascade.policy.depth_rules import FixedDepth
from cascade.policy.escalation_rules import Escalation, EscalationSpec
from cascade.policy.release import Limits
from cascade.replay.economics import Device, Terms
from cascade.replay.evaluate import evaluate
from cascade.replay.policy import Policy
from cascade.replay.question import Question
from cascade.replay.report import report
from cascade.replay.score_table import ScoreTable
from tests.replay.made import ROLES, made_table
from tests.replay.made_calibration import made_calibration

__all__ = ["HOSTILE", "bare_report", "whole_report"]

HOSTILE = '</script><img src=x onerror="document.title=1"><!--'
"""What an id may be, and must stay."""

_CALIBRATION = made_calibration(second=True)


def _hostile_table(queries: int = 60, seed: int = 1, **fields: Any) -> ScoreTable:
    """Return a made table with classes, milliseconds, tokens, and in places ids and sources that try to be markup."""
    table = made_table(queries, seed=seed, **fields)
    rows = len(table.doc_ids)
    names = (f"{HOSTILE}{table.query_ids[0]}", *table.query_ids[1:])
    attributes = {
        **table.attributes,
        "source": tuple((HOSTILE, "web")[row // 20 % 2] for row in range(rows)),
        "ms_small": tuple(0.5 + row % 5 / 10 for row in range(rows)),
        "ms_large": tuple(8.0 + row % 7 for row in range(rows)),
        "q_class": tuple(("identifier", "multi-part", "other")[row // 20 % 3] for row in range(rows)),
    }
    return made_table(queries, seed=seed, **{"query_ids": names, "attributes": attributes} | fields)


def bare_report(table: ScoreTable | None = None, **fields: Any) -> dict[str, Any]:
    """Return the report of one made table without a calibration."""
    question = Question(ROLES, **{"k": 5, "resamples": 1000} | fields)
    return report(evaluate({"made.parquet": table or made_table()}, question))


@cache
def whole_report() -> dict[str, Any]:
    """Return a report in which every section is: two hostile tables, a policy, its levels, times and prices.

    It is shared by all tests, so change a copy.
    """
    tables = {"one.parquet": _hostile_table(), "two.parquet": _hostile_table(30, seed=2, noise=0.5)}
    question = Question(ROLES, k=5, resamples=1000, support_tokens=60)
    at_levels = {"normal": _policy(_RULE, 20), "degraded-1": _policy("none", 8), "degraded-2": None}
    devices = (Device("cpu", 38.0, 0.1), Device("gpu", 1.2, 1.1))
    terms = Terms({"small": 0.4, "large": 9.0}, 3.0, 90.0, {"small": 0.35, "large": 1.2}, 0.6, devices)
    return report(evaluate(tables, question, _CALIBRATION, at_levels["normal"], at_levels=at_levels, terms=terms))


_RULE = {"kind": "calibrated", "calibration": _CALIBRATION.sha256, "k": 5, "price_per_pair": 0.01, "chunk": 4}


def _policy(escalation: Any, depth: int) -> Policy:
    rule: Escalation = TypeAdapter(EscalationSpec).validate_python(escalation)
    return Policy(rule, FixedDepth(depth=depth), Limits(), _CALIBRATION)
