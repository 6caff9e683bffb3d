"""How soon harm is rolled back, worked out beforehand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from cascade.errors import ConfigError
from cascade.policy.release import GuardrailLimits, RolloutRules, ShadowRules
from cascade.rollout.guardrails import time_to_rollback
from cascade.rollout.guardrails.time_to_rollback import seconds_to_gather


def test_each_guardrail_has_a_row_for_clear_and_for_gross_harm() -> None:
    """Five times the limit (0.05 at least) and half of the answers; at the first step that has a canary."""
    rows = time_to_rollback(RolloutRules(), 100.0)
    assert [(row["guardrail"], row["harm"], row["share"]) for row in rows] == [
        ("errors", 0.05, 0.01),
        ("errors", 0.5, 0.01),
        ("late", 0.05, 0.01),
        ("late", 0.5, 0.01),
        ("fallback", 0.1, 0.01),
        ("fallback", 0.5, 0.01),
        ("escalation", 0.5, 0.01),
        ("cost", 1.25, 0.01),
        ("ranking_loss", 0.05, 0.05 * 0.99),
        ("ranking_loss", 0.5, 0.05 * 0.99),
    ]
    queries = [row["queries"] for row in rows]
    assert all(20 <= count <= 1500 for count in queries)
    assert queries[1] < queries[0]
    assert [row["seconds"] for row in rows] == [
        pytest.approx(seconds_to_gather(row["queries"], row["share"] * 100.0) + 1.0) for row in rows
    ]


def test_the_warm_up_is_added_where_it_is_not_counted() -> None:
    """Late and degraded answers of the first twenty are not seen; errors are."""
    cold, warm = (
        {(row["guardrail"], row["harm"]): row["queries"] for row in time_to_rollback(RolloutRules(warm_up=count), 10.0)}
        for count in (0, 20)
    )
    assert warm[("late", 0.5)] == cold[("late", 0.5)] + 20
    assert warm[("fallback", 0.1)] == cold[("fallback", 0.1)] + 20
    assert warm[("errors", 0.5)] == cold[("errors", 0.5)]


def test_what_is_off_or_never_met_has_no_row() -> None:
    """No canary, no pairs beside, a guardrail that is off, a limit that takes half of the answers."""
    assert time_to_rollback(RolloutRules(steps=(0.0,), shadow=ShadowRules(share=0.0)), 1.0) == []
    only = GuardrailLimits(late=None, errors=0.5, fallback=0.02, escalation=None, cost=None, ranking_loss=None)
    rows = time_to_rollback(RolloutRules(guardrails=only), 1.0)
    assert {row["guardrail"] for row in rows} == {"fallback"}


def test_harm_that_takes_too_long_is_told_as_unknown() -> None:
    """A twentieth more than a limit of nothing at all is not met within 8192 pairs."""
    off = GuardrailLimits(late=None, errors=None, fallback=None, escalation=None, cost=0.0, ranking_loss=None)
    assert time_to_rollback(RolloutRules(guardrails=off), 1.0) == [
        {"guardrail": "cost", "harm": 0.05, "queries": None, "share": 0.01, "seconds": None}
    ]


@pytest.mark.parametrize("rate", [0.0, -1.0, math.nan, math.inf])
def test_a_rate_that_is_none_is_refused(rate: float) -> None:
    """No time can be told."""
    with pytest.raises(ConfigError, match="requests_per_s"):
        time_to_rollback(RolloutRules(), rate)


def test_the_time_to_gather_is_the_quantile_of_a_gamma_distribution() -> None:
    """Within half a percent of 99 in 100 of played arrivals."""
    rng = np.random.default_rng(4)
    for count in (20, 700):
        played = np.quantile(rng.gamma(count, 1.0 / 2.0, 400_000), 0.99)
        assert seconds_to_gather(count, 2.0) == pytest.approx(played, rel=0.005)
