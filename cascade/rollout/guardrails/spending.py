"""How the probability of a false alarm is shared out among the tests of a rollout."""

from __future__ import annotations

import math

from cascade.policy.release import GuardrailLimits, RolloutRules

__all__ = ["canary_steps", "harm_alpha", "look_alpha"]


def canary_steps(rules: RolloutRules) -> list[int]:
    """Return the places of the steps at which both releases answer."""
    return [place for place, step in enumerate(rules.steps) if 0 < step < 100]


def harm_alpha(rules: RolloutRules) -> float:
    """Return what each test for harm may spend, so that all of them together spend ``alpha`` (union bound).

    There is a test for each guardrail of the arms at each step that has both, one of ranking loss at each step, one of
    the judged queries, and one of drift for each stage. A pass needs no sharing: a release beyond a limit must pass
    that very guardrail at every step, so it reaches the last one with a probability of ``alpha`` at most.
    """
    limits = rules.guardrails
    tests = _of_arms(limits) * len(canary_steps(rules))
    if limits.ranking_loss is not None:
        tests += sum(step < 100 for step in rules.steps) + 1
    if limits.drift_psi is not None:
        tests += 2
    return rules.alpha / max(1, tests)


def look_alpha(alpha: float, look: int) -> float:
    """Return what the look of a number from 1 may spend of ``alpha``: shares that sum to 1 over all looks."""
    return alpha * 6.0 / (math.pi * look) ** 2


def _of_arms(limits: GuardrailLimits) -> int:
    of_arms = (limits.late, limits.errors, limits.fallback, limits.escalation, limits.cost)
    return sum(limit is not None for limit in of_arms)
