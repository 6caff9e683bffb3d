"""What does not go with the question."""

from __future__ import annotations

import numpy as np
import pytest
from pydantic import TypeAdapter

from cascade.errors import ConfigError
from cascade.policy.depth_rules import FixedDepth
from cascade.policy.escalation_rules import Escalation, EscalationSpec
from cascade.policy.release import Limits
from cascade.replay.evaluate import evaluate
from cascade.replay.policy import Policy
from cascade.replay.question import Question
from cascade.replay.suited import check_relevant, failed_queries, unfinished
from tests.replay.made import ROLES, made_table
from tests.replay.made_calibration import made_calibration


@pytest.mark.parametrize(
    ("conditions", "failed"),
    [
        ({}, 0),
        ({"counts": {"failed": 2}}, 2),
        ({"counts": {"scored": 2}}, 0),
        ({"counts": "many"}, 0),
        ({"joined": [{"counts": {"failed": 2}}, {"joined": [{"counts": {"failed": 3}}]}, "other"]}, 5),
    ],
)
def test_queries_that_failed_are_counted_through_joined_tables(conditions: dict[str, object], failed: int) -> None:
    """What a table of any making tells, and nothing where it does not tell."""
    assert failed_queries(conditions) == failed
    assert (unfinished("t", conditions) is None) == (failed == 0)


def test_one_relevant_document_is_enough() -> None:
    """Only where no query has one every figure would be nought."""
    check_relevant(np.array([True, False]))
    with pytest.raises(ConfigError, match=r"^column rel: none of the 2 queries has a relevant document$"):
        check_relevant(np.array([True, True]))


@pytest.mark.parametrize(("k", "noted"), [(5, False), (10, True)])
def test_a_policy_for_another_k_is_noted(k: int, noted: bool) -> None:
    """It decides for the top 5, and quality is at 10."""
    calibration = made_calibration()
    spec = {"kind": "static-fused", "calibration": calibration.sha256, "top_m": 3, "k": 5}
    rule: Escalation = TypeAdapter(EscalationSpec).validate_python(spec)
    policy = Policy(rule, FixedDepth(depth=20), Limits(), calibration)
    notes = evaluate({"t": made_table(10)}, Question(ROLES, k=k, resamples=1000), calibration, policy).notes
    assert ("the policy decides for the top 5, and quality is at 10" in notes) == noted
