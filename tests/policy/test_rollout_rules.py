"""What a release says of how it is rolled out."""

from __future__ import annotations

from typing import Any

import pytest

from cascade.errors import ConfigError
from cascade.policy.release import RolloutRules, parse_release, policy_digest, release_digest
from tests.scenario import release_data

_CANARY = "a secret that no one may see"


def _rules(**rollout: Any) -> RolloutRules:
    return parse_release(release_data(rollout=rollout)).rollout


def test_the_defaults_are_those_of_the_documentation() -> None:
    """A release that says nothing of it is rolled out in four steps, with every guardrail on."""
    rules = parse_release(release_data()).rollout
    assert rules.steps == (1, 5, 25, 100)
    assert (rules.min_queries, rules.min_seconds, rules.warm_up, rules.alpha) == (500, 60, 20, 0.05)
    assert rules.guardrails.model_dump() == {
        "late": 0.01,
        "errors": 0.005,
        "fallback": 0.02,
        "escalation": 0.1,
        "cost": 0.25,
        "ranking_loss": 0.01,
        "drift_psi": 0.25,
    }
    assert (rules.shadow.share, rules.prices.small, rules.prices.large) == (0.05, 0.1, 1.0)


@pytest.mark.parametrize("steps", [[0], [0, 5, 100], [0.5, 100], [99.9, 100]])
def test_steps_that_rise_to_all_or_stay_beside_are_taken(steps: list[float]) -> None:
    """A first 0 is scored beside only; alone it never goes further."""
    assert _rules(steps=steps).steps == tuple(steps)


@pytest.mark.parametrize(
    ("steps", "told"),
    [
        ([5, 1, 100], "each must be above the one before"),
        ([5, 5, 100], "each must be above the one before"),
        ([1, 5], "the last must be 100"),
        ([100], "a share between 0 and 100 must come before 100"),
        ([0, 100], "a share between 0 and 100 must come before 100"),
        ([-1, 100], "greater than or equal to 0"),
        ([1, 101], "less than or equal to 100"),
        ([], "at least 1 item"),
        (["1", 100], "valid number"),
    ],
)
def test_other_steps_are_refused(steps: list[Any], told: str) -> None:
    """What compares nothing, or goes back, is no rollout."""
    with pytest.raises(ConfigError, match=told):
        _rules(steps=steps)


def test_null_switches_a_guardrail_off_and_zero_is_a_limit() -> None:
    """Not set is its own value."""
    limits = _rules(guardrails={"late": None, "errors": 0}).guardrails
    assert (limits.late, limits.errors) == (None, 0)


@pytest.mark.parametrize(
    "wrong",
    [
        {"guardrails": {"lateness": 0.1}},
        {"step": [1, 100]},
        {"alpha": 0},
        {"gold": "sha256:1"},
        {"shadow": {"share": 2}},
    ],
)
def test_an_unknown_key_or_a_value_out_of_range_is_refused(wrong: dict[str, Any]) -> None:
    """As everywhere in a release."""
    with pytest.raises(ConfigError, match=r"^rollout"):
        _rules(**wrong)


def test_the_text_of_a_smoke_query_is_in_no_repr_dump_or_error() -> None:
    """It is asked, and written nowhere."""
    release = parse_release(
        release_data(rollout={"smoke": [{"query": _CANARY, "documents": ["one", _CANARY], "first": 1}]})
    )
    smoke = release.rollout.smoke[0]
    assert (smoke.query, smoke.documents, smoke.first) == (_CANARY, ("one", _CANARY), 1)
    assert _CANARY not in repr(release)
    assert _CANARY not in release.model_dump_json()
    assert release.rollout.model_dump()["smoke"][0] == {
        "query": "<28 characters>",
        "documents": ("<3 characters>", "<28 characters>"),
        "first": 1,
    }
    with pytest.raises(ConfigError, match="there is no document 1") as refused:
        _rules(smoke=[{"query": _CANARY, "documents": [_CANARY], "first": 1}])
    assert _CANARY not in str(refused.value)


def test_how_it_is_rolled_out_is_no_part_of_the_policy_digest() -> None:
    """It changes no answer, so reports and certificates still name the release; its own digest is another."""
    plain, slower = release_data(), release_data(rollout={"steps": [1, 100]})
    assert policy_digest(plain) == policy_digest(slower)
    assert release_digest(plain) != release_digest(slower)
