"""Make what judges a candidate against the stable release."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from cascade.errors import ConfigError
from cascade.policy.release import Release
from cascade.rollout.controller import RolloutController
from cascade.rollout.guardrails import Observed, changes, observed_of, pricings
from cascade.rollout.trial import Judge
from cascade.telemetry.logs import note
from cascade.types import Arm, Decision, StageName

__all__ = ["judge_of"]


def judge_of(
    stable: Release, candidate: Release, *, now: float, has_gold: bool, kept: Mapping[str, Any] | None = None
) -> Judge:
    """Return the controller of a candidate, and what it is told of a decision of either arm.

    ``kept`` is its state before a restart; where that cannot be read the candidate begins again at its first step, and
    the log says so. Raises ConfigError for a serializer that does not exist.
    """
    rules, differs = candidate.rollout, asdict(changes(stable, candidate))
    price_of_stable, price_of_candidate = pricings(stable, candidate)

    def observed(decision: Decision, answered: bool) -> Observed:
        price = price_of_candidate if decision.arm is Arm.CANARY else price_of_stable
        small, large = (_top(decision, stage) for stage in (StageName.SMALL, StageName.LARGE))
        return observed_of(decision, answered, price, small_top=small, large_top=large)

    if kept is not None:
        try:
            return Judge(RolloutController.restored(kept, rules, **differs, has_gold=has_gold, now=now), observed)
        except ConfigError as error:
            note("warning", "rollout begins again", release=candidate.release, why=str(error))
    return Judge(RolloutController(rules, **differs, has_gold=has_gold, started_at=now), observed)


def _top(decision: Decision, stage: StageName) -> float | None:
    return max((one.top for one in decision.rounds if one.stage is stage and one.top is not None), default=None)
