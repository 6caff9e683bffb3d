"""Rollouts played on a virtual clock with the controller that is served: harm is met in time, and likeness is let be."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache

import pytest

from cascade.policy.release import RolloutRules
from cascade.rollout.controller import RolloutVerdict
from cascade.rollout.guardrails import time_to_rollback

from .rollout_simulation import SCENARIOS, Outcome, planted, played

RULES = RolloutRules.model_validate(
    {"steps": [40, 70, 100], "min_queries": 200, "min_seconds": 5, "shadow": {"share": 0.2}}
)
"""Larger shares than the defaults, so that fewer requests are played; limits and alpha are the defaults."""
_PER_S = 100.0
_BOUNDS = {(row["guardrail"], row["harm"]): row for row in time_to_rollback(RULES, _PER_S)}


@cache
def _identical() -> tuple[Outcome, ...]:
    scenario = replace(SCENARIOS["identical"](), requests_per_s=4 * _PER_S)
    return tuple(played(scenario, RULES, seed) for seed in range(200))


@pytest.mark.parametrize(
    ("guardrail", "harm"),
    [("ranking_loss", 0.05), ("ranking_loss", 0.5), ("late", 0.05), ("late", 0.5), ("errors", 0.05), ("errors", 0.5)],
)
def test_planted_harm_is_rolled_back_within_the_time_told_beforehand(guardrail: str, harm: float) -> None:
    """Of 50 runs each, all are rolled back by that guardrail, and 95% at least within its queries and its seconds."""
    bound = _BOUNDS[guardrail, harm]
    outcomes = [played(planted(guardrail, harm), RULES, seed) for seed in range(50)]
    assert all(one.verdict is RolloutVerdict.ROLL_BACK and guardrail in one.failed for one in outcomes)
    assert sum(one.seconds <= bound["seconds"] for one in outcomes) >= 0.95 * len(outcomes)
    # Answers of the second in which it was shown come on top: the controller looks once a second.
    look = 2.0 * _PER_S * bound["share"]
    counted = [one.pairs if guardrail == "ranking_loss" else one.queries for one in outcomes]
    assert sum(count <= bound["queries"] + look for count in counted) >= 0.95 * len(outcomes)


@pytest.mark.long
def test_identical_releases_are_seldom_rolled_back() -> None:
    """Of 200 at most alpha and three standard errors."""
    alarms = sum(one.verdict is RolloutVerdict.ROLL_BACK for one in _identical())
    assert alarms / 200 <= RULES.alpha + 3 * math.sqrt(RULES.alpha * (1 - RULES.alpha) / 200)


@pytest.mark.long
def test_identical_releases_reach_all_of_the_traffic() -> None:
    """Nearly all of 200, half of them within a minute at 400 requests a second, by evidence alone."""
    complete = [one for one in _identical() if one.verdict is RolloutVerdict.COMPLETE]
    assert len(complete) >= 190
    assert sorted(one.seconds for one in complete)[len(complete) // 2] < 60
    assert all(one.told["promoted_without_evidence"] == [] for one in complete)


@pytest.mark.parametrize("name", ["day", "cold", "bursts"])
def test_what_happens_to_both_or_passes_is_no_alarm(name: str) -> None:
    """A day that changes both arms alike, caches that are cold at first, errors of both at the same times."""
    outcomes = [played(SCENARIOS[name](), RULES, seed) for seed in range(4)]
    assert [one.verdict for one in outcomes] == [RolloutVerdict.COMPLETE] * 4


def test_tiny_traffic_stays_inconclusive() -> None:
    """An hour of one request in 20 s neither fails nor advances."""
    scenario = SCENARIOS["tiny"]()
    outcomes = [played(scenario, RULES, seed) for seed in range(2)]
    assert {(one.verdict, one.step) for one in outcomes} == {(RolloutVerdict.HOLD, 0)}
    assert all("inconclusive" in {each["verdict"] for each in one.told["guardrails"]} for one in outcomes)


def test_another_large_stage_without_judged_queries_holds() -> None:
    """Everything else is shown by then; only an operator goes on."""
    one = played(replace(SCENARIOS["no gold"](), longest_s=240.0), RULES, 1)
    assert (one.verdict, one.step) == (RolloutVerdict.HOLD, 0)
    assert [each.partition(":")[0] for each in one.told["waits_for"]] == ["ranking_loss"]


def test_scores_that_moved_are_rolled_back() -> None:
    """A stage that is the same and scores otherwise: another model behind the same name."""
    outcomes = [played(SCENARIOS["drift"](), RULES, seed) for seed in range(5)]
    assert {one.failed for one in outcomes} == {("drift_small",)}
