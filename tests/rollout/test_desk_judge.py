"""What judges a candidate: the controller of its rules, told of decisions by the prices of each release."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

import orjson
import pytest

from cascade.decision import DegradedReason, Round
from cascade.policy.release import Release, parse_release
from cascade.rollout.controller import RolloutVerdict
from cascade.rollout.guardrails import Settled
from cascade.rollout.judge import judge_of
from cascade.telemetry.logs import configure_logging
from cascade.types import Arm, StageName
from tests.logs import logging_given_back
from tests.rollout.arrange import stage_data
from tests.rollout.desk_fakes import decision


def _release(name: str, **changes: Any) -> Release:
    data: dict[str, Any] = {
        "release": name,
        "stages": {"small": stage_data("small"), "large": stage_data("large")},
        "depth": 50,
        "escalation": {"kind": "static", "top_m": 10},
        "budgets": {"total_ms": 100, "small_ms": 40, "large_ms": 60, "reserve_ms": 10},
    }
    return parse_release(data | changes)


def _round(stage: StageName, sent: int, top: float | None) -> Round:
    return Round(stage, "m", sent, sent, 0, 0, "ok", "", 1.0, None, top)


def test_a_decision_is_observed_with_its_cost_and_best_scores() -> None:
    """Each arm by its own prices in one unit; the best score of a stage is that of all its rounds."""
    candidate = _release("r2", rollout={"prices": {"small": 0.2, "large": 1.0}})
    judge = judge_of(_release("r1"), candidate, now=0.0)
    rounds = (
        _round(StageName.SMALL, 50, 3.5),
        _round(StageName.LARGE, 4, 1.0),
        _round(StageName.LARGE, 6, 2.0),
        Round(StageName.LARGE, "m", 0, 0, 0, 0, DegradedReason.STAGE_TIMEOUT, "deadline", 1.0),
    )
    said = replace(decision(Arm.CANARY, "r2"), rounds=rounds, candidates=100)
    canary = judge.observed(Settled(Arm.CANARY, "sha256:r2", said, answered=True))
    stable = judge.observed(Settled(Arm.STABLE, "sha256:r1", replace(said, arm=Arm.STABLE), answered=False))
    assert (canary.small_top, canary.large_top) == (3.5, 2.0)
    assert canary.cost == pytest.approx((50 * 0.2 + 10) / (50 * 0.2 + 10))
    assert stable.cost == pytest.approx((50 * 0.1 + 10) / (50 * 0.2 + 10))
    assert (canary.error, stable.error, canary.escalated_share) == (False, True, 0.1)
    bare = judge.observed(Settled(Arm.CANARY, "sha256:r2", decision(Arm.CANARY, "r2"), answered=True))
    assert (bare.small_top, bare.large_top, bare.cost) == (None, None, 0.0)


@pytest.mark.parametrize(("stable_ms", "candidate_ms"), [(100, 400), (400, 100)])
def test_a_candidate_that_gives_itself_more_time_is_late_where_the_stable_release_would_be(
    stable_ms: int, candidate_ms: int
) -> None:
    """Whoever allows more: without a deadline of the caller's, both arms are held to the smaller budget."""
    budgets = {"small_ms": 40, "large_ms": 60, "reserve_ms": 10}
    stable, candidate = (
        _release(name, budgets=budgets | {"total_ms": total_ms})
        for name, total_ms in (("r1", stable_ms), ("r2", candidate_ms))
    )
    judge = judge_of(stable, candidate, now=0.0)
    for arm, own_ms in ((Arm.STABLE, stable_ms), (Arm.CANARY, candidate_ms)):
        said = replace(decision(arm, total_ms=own_ms / 2 + 60), deadline_ms=float(own_ms))
        assert judge.observed(Settled(arm, "sha256:any", said, answered=True)).late
        quick = replace(said, total_ms=99.0)
        assert not judge.observed(Settled(arm, "sha256:any", quick, answered=True)).late


def test_a_controller_goes_on_from_what_was_kept() -> None:
    """Its step and its promotions are those of before."""
    stable, candidate = _release("r1"), _release("r2")
    before = judge_of(stable, candidate, now=5.0).controller
    before.promote(6.0)
    after = judge_of(stable, candidate, now=0.0, kept=before.state()).controller
    assert (after.step, after.share) == (1, 0.05)
    assert after.tick(1.0) is RolloutVerdict.HOLD


def test_a_state_that_is_of_other_rules_begins_again_and_is_told() -> None:
    """A candidate whose numbers cannot be read starts at its first step: less traffic, never more."""
    log = io.BytesIO()
    with logging_given_back():
        configure_logging("info", log)
        controller = judge_of(_release("r1"), _release("r2"), now=0.0, kept={"step": 3}).controller
    assert controller.step == 0
    (event,) = [orjson.loads(line) for line in log.getvalue().splitlines()]
    assert (event["event"], event["release"], event["level"]) == ("rollout begins again", "r2", "warning")
