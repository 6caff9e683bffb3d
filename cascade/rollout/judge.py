"""Make what judges a candidate against the stable release."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from cascade.errors import ConfigError
from cascade.policy.release import Release
from cascade.rollout.controller import RolloutController
from cascade.rollout.guardrails import Observed, Settled, changes, observed_of, pricings
from cascade.rollout.history import KeptCandidate
from cascade.rollout.load import offline, release_from
from cascade.rollout.source import open_source
from cascade.rollout.trial import Judge
from cascade.telemetry.logs import note
from cascade.types import Arm

__all__ = ["judge_of", "shown_before"]


def judge_of(stable: Release, candidate: Release, *, now: float, kept: Mapping[str, Any] | None = None) -> Judge:
    """Return the controller of a candidate, and what it is told of a request of either arm.

    ``kept`` is its state before a restart; where that cannot be read the candidate begins again at its first step, and
    the log says so. Raises ConfigError for a serializer that does not exist.
    """
    rules, differs = candidate.rollout, asdict(changes(stable, candidate))
    has_gold = rules.gold is not None
    price_of_stable, price_of_candidate = pricings(stable, candidate)
    within_ms = min(release.budgets.total_ms for release in (stable, candidate))

    def observed(settled: Settled) -> Observed:
        return observed_of(settled, price_of_candidate if settled.arm is Arm.CANARY else price_of_stable, within_ms)

    if kept is not None:
        try:
            return Judge(RolloutController.restored(kept, rules, **differs, has_gold=has_gold, now=now), observed)
        except ConfigError as error:
            note("warning", "rollout begins again", release=candidate.release, why=str(error))
    return Judge(RolloutController(rules, **differs, has_gold=has_gold, started_at=now), observed)


def shown_before(stable: Release, kept: KeptCandidate) -> dict[str, Any]:
    """Return what a candidate had shown when it was kept: the guardrails; none where its bundle cannot be used any more."""
    try:
        candidate = release_from(open_source(Path(kept.path)), offline(os.environ)).release
        return judge_of(stable, candidate, now=0.0, kept=kept.controller).controller.told()
    except ConfigError:
        return {"guardrails": []}
