"""What section tests ask, and policies they ask it of."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pydantic import TypeAdapter

from cascade.calibration.calibrated import Calibration
from cascade.policy.depth_rules import FixedDepth
from cascade.policy.escalation_rules import Escalation, EscalationSpec
from cascade.policy.release import Limits
from cascade.replay.policy import Played, Policy, play
from cascade.replay.queries import ReplayedQuery
from cascade.replay.question import Question
from tests.replay.made import ROLES, made_query

__all__ = ["asked", "named", "policy", "replay"]


def asked(**fields: Any) -> Question:
    """Return a question of few resamples, k of 5 and a price of .01."""
    return Question(ROLES, **{"k": 5, "price": 0.01, "resamples": 1000} | fields)


def named(small: list[float], large: list[float], gains: list[float], ideal: float = 1.0) -> ReplayedQuery:
    """Return one query of given scores and gains whose candidates are named by their place."""
    return replace(made_query(small, large, gains, ideal), documents=tuple(map(str, range(len(small)))), id="q")


def policy(escalation: object, depth: int, calibration: Calibration | None = None) -> Policy:
    """Return a policy of this escalation with a fixed depth."""
    rule: Escalation = TypeAdapter(EscalationSpec).validate_python(escalation)
    return Policy(rule, FixedDepth(depth=depth), Limits(), calibration)


def replay(query: ReplayedQuery, escalation: object, depth: int, question: Question) -> Played:
    """Replay a policy on one query."""
    return play([query], policy(escalation, depth), question.k, question.metric)
