"""What the guardrails see of a request, and of two releases."""

from __future__ import annotations

import math
from typing import Any

import pytest

from cascade.decision import Decision, DegradedReason
from cascade.errors import ConfigError
from cascade.policy.release import Prices, Release, parse_release
from cascade.rollout.guardrails import Observed, Pricing, Settled, changes, observed_of, pricings
from cascade.rollout.guardrails.changes import Changes
from cascade.types import Arm, StageName
from tests.scenario import release_data
from tests.telemetry.decisions import decision, round_of

_PRICING = Pricing(Prices(small=0.1, large=1.0), 25.0)


def _release(**changed: Any) -> Release:
    return parse_release(release_data(**changed))


def _stages(**changed: Any) -> dict[str, Any]:
    stages = release_data()["stages"]
    return {name: spec | changed.get(name, {}) for name, spec in stages.items()}


def _seen(decided: Decision | None, *, answered: bool = True, within_ms: float = 100.0, **told: Any) -> Observed:
    arm = Arm.STABLE if decided is None else decided.arm
    return observed_of(Settled(arm, "sha256:r1", decided, answered, **told), _PRICING, within_ms)


def test_an_ordinary_decision_is_neither_late_nor_an_error() -> None:
    """Pairs are counted by stage, whether or not they came back; the cost is by price over the dearest request."""
    rounds = (
        round_of(StageName.RETRIEVAL, sent=7),
        round_of(sent=50, top=1.5),
        round_of(StageName.LARGE, sent=4, top=2.0),
        round_of(StageName.LARGE, sent=2, outcome="stage_timeout"),
    )
    seen = _seen(decision(candidates=60, rounds=rounds, arm=Arm.CANARY))
    assert seen == Observed(Arm.CANARY, escalated_share=0.1, cost=(5 + 6) / 25, small_top=1.5, large_top=2)


@pytest.mark.parametrize(
    ("changed", "answered", "late", "error", "fallback"),
    [
        ({"total_ms": 100.0}, True, False, False, False),
        ({"total_ms": 100.1}, True, True, False, False),
        ({"degraded": (DegradedReason.STAGE_TIMEOUT,)}, True, False, False, True),
        ({"degraded": (DegradedReason.STAGE_TIMEOUT,)}, False, False, True, True),
        ({"degraded": (DegradedReason.INTERNAL_ERROR,)}, True, False, True, True),
    ],
)
def test_what_is_bad_is_told_apart(
    changed: dict[str, Any], answered: bool, late: bool, error: bool, fallback: bool
) -> None:
    """Late is after the deadline; an error is no order, or a fault of ours; a degraded answer is a fallback."""
    seen = _seen(decision(**changed), answered=answered)
    assert (seen.late, seen.error, seen.fallback) == (late, error, fallback)


@pytest.mark.parametrize(("took_ms", "deadline_ms", "states_deadline", "late"), [
    (150.0, 200.0, False, True),   # a release that takes longer than the other allows, by a budget of its own
    (100.0, 200.0, False, False),
    (150.0, 200.0, True, False),   # whose caller gave it that long
    (250.0, 200.0, True, True),
    (60.0, 50.0, False, True),     # a level with less time than either release
])  # fmt: skip
@pytest.mark.parametrize("arm", [Arm.STABLE, Arm.CANARY])
def test_late_is_by_the_callers_deadline_else_by_the_smaller_budget(
    took_ms: float, deadline_ms: float, states_deadline: bool, late: bool, arm: Arm
) -> None:
    """Both arms alike: each by its own budget would find no release late that only takes longer."""
    said = decision(total_ms=took_ms, deadline_ms=deadline_ms, arm=arm)
    assert _seen(said, within_ms=100.0, states_deadline=states_deadline).late is late


def test_a_body_of_several_queries_costs_the_mean_of_them() -> None:
    """As a sum it would stand at the cost of the dearest query, whatever a release sends."""
    rounds = (round_of(sent=200), round_of(StageName.LARGE, sent=16))
    body = decision(candidates=240, rounds=rounds)
    assert _seen(body, queries=4) == Observed(Arm.STABLE, escalated_share=16 / 240, cost=(50 * 0.1 + 4) / 25)
    dearer = decision(candidates=240, rounds=(*rounds, round_of(StageName.LARGE, sent=16)))
    assert _seen(dearer, queries=4).cost == (50 * 0.1 + 8) / 25


def test_what_a_release_does_not_take_is_an_error_of_its_arm_and_no_more() -> None:
    """Nothing was decided: neither late nor degraded, and without cost."""
    settled = Settled(Arm.CANARY, "sha256:r2", None, answered=False)
    assert observed_of(settled, _PRICING, 100.0) == Observed(Arm.CANARY, error=True)


@pytest.mark.parametrize(
    ("waited_ms", "states_deadline", "observed"),
    [
        (150.0, False, Observed(Arm.CANARY, late=True, unit=7)),
        (100.0, False, Observed(Arm.CANARY, left=True, unit=7)),  # why is not known
        (150.0, True, Observed(Arm.CANARY, left=True, unit=7)),
    ],
)
def test_a_caller_who_left_after_the_smaller_budget_was_answered_late(
    waited_ms: float, states_deadline: bool, observed: Observed
) -> None:
    """A release that gives itself more time than callers have would else be late for nobody: none of them waits for it."""
    settled = Settled(Arm.CANARY, "sha256:r2", None, False, 1, states_deadline, 7, left_after_ms=waited_ms)
    assert observed_of(settled, _PRICING, 100.0) == observed


def test_a_share_and_a_cost_are_never_above_one() -> None:
    """A level or a safe mode may send more than was reckoned with."""
    seen = _seen(decision(candidates=1, rounds=(round_of(StageName.LARGE, sent=100),)))
    assert (seen.escalated_share, seen.cost) == (1.0, 1.0)
    assert Pricing(Prices(), 0.0).cost(10, 10) == 0.0


@pytest.mark.parametrize("wrong", [{"cost": 1.1}, {"escalated_share": -0.1}, {"cost": math.nan}])
def test_an_observation_that_is_none_is_refused(wrong: dict[str, float]) -> None:
    """It would spoil a wager for good."""
    with pytest.raises(ConfigError, match="observed"):
        Observed(Arm.CANARY, **wrong)  # type: ignore[arg-type]


def test_two_releases_are_priced_in_one_unit_each_by_its_own_prices() -> None:
    """The dearest request is 50 small pairs and 20 large ones; the candidate's large stage is three times as dear."""
    stable = _release()
    candidate = _release(rollout={"prices": {"small": 0.1, "large": 3}})
    first, second = pricings(stable, candidate)
    assert first.most == second.most == 50 * 0.1 + 20 * 3
    assert first.cost(50, 20) == pytest.approx(25 / 65)
    assert second.cost(50, 20) == 1.0


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"release": "r2", "limits": {"max_documents": 3000}}, Changes(False, False, False, False)),
        ({"stages": _stages(large={"url": "http://other.example"})}, Changes(False, False, False, False)),
        ({"stages": _stages(large={"model": "other"})}, Changes(True, False, False, False)),
        ({"stages": _stages(small={"dtype": "float16"})}, Changes(False, True, False, False)),
        ({"depth": 20}, Changes(False, False, True, False)),
        ({"limits": {"max_candidates": 30}}, Changes(False, False, True, False)),
        ({"escalation": {"kind": "static", "top_m": 10}}, Changes(False, False, False, True)),
        ({"stages": {"small": _stages()["small"]}, "escalation": "none"}, Changes(False, False, False, True)),
    ],
)
def test_what_another_release_changes_is_told(changed: dict[str, Any], expected: Changes) -> None:
    """A large stage that is left out can still be judged by the one that there was."""
    assert changes(_release(), _release(**changed)) == expected


def test_a_stable_release_without_a_large_stage_or_whose_orders_lists_cannot_judge() -> None:
    """Nor can it judge another that has none, or its like."""
    small = _stages()["small"]
    chat = {"adapter": "chat", "url": "http://chat.example", "model": "m", "engine": "vllm/0.11"}
    lists = _release(stages={"small": small, "large": chat})
    assert changes(lists, lists) == changes(lists, _release()) == Changes(True, False, False, False)
    small_only = _release(stages={"small": _stages()["small"]}, escalation="none")
    assert changes(small_only, _release()) == Changes(True, False, False, True)
    assert changes(small_only, small_only) == Changes(True, False, False, False)
