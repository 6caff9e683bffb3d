"""What the guardrails see of a request, and of two releases."""

from __future__ import annotations

import math
from typing import Any

import pytest

from cascade.errors import ConfigError
from cascade.policy.release import Prices, Release, parse_release
from cascade.rollout.guardrails.changes import Changes, changes
from cascade.rollout.guardrails.observed import Observed, Pricing, observed_of, pricings
from cascade.types import Arm, DegradedReason, StageName
from tests.scenario import release_data
from tests.telemetry.decisions import decision, round_of

_PRICING = Pricing(Prices(small=0.1, large=1.0), 25.0)


def _release(**changed: Any) -> Release:
    return parse_release(release_data(**changed))


def _stages(**changed: Any) -> dict[str, Any]:
    stages = release_data()["stages"]
    return {name: spec | changed.get(name, {}) for name, spec in stages.items()}


def test_an_ordinary_decision_is_neither_late_nor_an_error() -> None:
    """Pairs are counted by stage, whether or not they came back; the cost is by price over the dearest request."""
    rounds = (
        round_of(StageName.RETRIEVAL, sent=7),
        round_of(sent=50),
        round_of(StageName.LARGE, sent=4),
        round_of(StageName.LARGE, sent=2, outcome="stage_timeout"),
    )
    seen = observed_of(
        decision(candidates=60, rounds=rounds, arm=Arm.CANARY),
        answered=True,
        pricing=_PRICING,
        small_top=1.5,
        large_top=2,
    )
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
    seen = observed_of(decision(**changed), answered, _PRICING)
    assert (seen.late, seen.error, seen.fallback) == (late, error, fallback)


def test_a_share_and_a_cost_are_never_above_one() -> None:
    """A level or a safe mode may send more than was reckoned with."""
    seen = observed_of(
        decision(candidates=1, rounds=(round_of(StageName.LARGE, sent=100),)), answered=True, pricing=_PRICING
    )
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


def test_a_stable_release_without_a_large_stage_cannot_judge() -> None:
    """Nor can it judge another that has none."""
    small_only = _release(stages={"small": _stages()["small"]}, escalation="none")
    assert changes(small_only, _release()) == Changes(True, False, False, True)
    assert changes(small_only, small_only) == Changes(True, False, False, False)
