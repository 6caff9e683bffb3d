"""What the desk tells of where a rollout stands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cascade.rollout.activation import ActivationStep
from cascade.rollout.history import UNDER_WAY, Remembered, RolloutState
from cascade.rollout.ports import Serving
from cascade.rollout.trial import Trial

__all__ = ["status_of"]


def status_of(
    remembered: Remembered,
    trial: Trial[Any] | None,
    step: ActivationStep | None,
    within: Sequence[dict[str, Any]],
) -> dict[str, Any]:
    """Return the status as `GET /rollout` gives it. ``step`` is the activation step under way.

    ``share`` is the candidate's, from 0 to 1; ``step`` counts the release's ``steps``, which are percents, from 0.
    """
    under_way = trial is not None or step is not None
    state = RolloutState.ACTIVATING if step is not None else remembered.state
    if not under_way and state in UNDER_WAY:  # a restart has not gone on with it yet
        state = RolloutState.IDLE
    kept = remembered.candidate if under_way else None
    told: dict[str, Any] = {
        "state": state,
        "activation_step": step,
        "stable": None if remembered.stable is None else remembered.stable.model_dump(mode="json"),
        "candidate": None,
        "refused": None if remembered.refused is None else remembered.refused.model_dump(mode="json"),
        "share": 0.0,
        "step": None,
        "steps": [],
        "promoted_without_evidence": [],
        "guardrails": [],
        "waits_for": [],
        "rollback_within": list(within),
    }
    if kept is not None:
        names = ("release", "digest", "asked_at", "downloaded_at", "activated_at", "at_once", "lenient")
        told["candidate"] = {name: getattr(kept, name) for name in names}
    if trial is not None:
        told |= {"share": trial.controller.share, "step": trial.controller.step, "steps": _steps(trial.candidate)}
        told |= trial.controller.told()
    return told


def _steps(release: Serving) -> list[float]:
    return list(release.bundle.loaded.release.rollout.steps)
