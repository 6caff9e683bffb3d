"""Describe a release for a person."""

from __future__ import annotations

from cascade.calibration.artefact import CalibrationArtefact
from cascade.policy.release import Budgets
from cascade.rollout.bundle import Bundle, evidence_of
from cascade.rollout.words import calibration_lines, depth_words, escalation_words, stage_words

__all__ = ["description"]


def description(bundle: Bundle) -> list[str]:
    """Return lines: name and digests, mode, stages, depth, escalation, times, its calibration and its evidence.

    No address is among them.
    """
    loaded, release = bundle.loaded, bundle.loaded.release
    evidence = evidence_of(loaded)
    return [
        f"release        {release.release}",
        f"digest         {loaded.digest}",
        f"policy digest  {loaded.policy_digest}",
        f"mode           {release.mode}",
        f"small stage    {stage_words(release.stages.small)}",
        f"large stage    {stage_words(release.stages.large)}",
        f"depth          {depth_words(release.depth)}",
        f"escalation     {escalation_words(release.escalation)}",
        f"time           {_times(release.budgets)}; where it is not enough: {release.fallback}",
        *_calibration(release.calibration, bundle),
        *(f"{kind:<14} {evidence.get(kind, 'none')}" for kind in ("certificate", "report")),
    ]


def _times(budgets: Budgets) -> str:
    parts = f"small {budgets.small_ms:g}, large {budgets.large_ms:g}, kept {budgets.reserve_ms:g}"
    return f"{budgets.total_ms:g} ms in all, {parts}"


def _calibration(digest: str | None, bundle: Bundle) -> list[str]:
    if digest is None:
        return ["calibration    none"]
    artefact: CalibrationArtefact | None = None if bundle.calibration is None else bundle.calibration.artefact
    if artefact is None:
        return [f"calibration    cannot be used: {bundle.fault}"]
    return [f"calibration    {digest}", *(f"               {line}" for line in calibration_lines(artefact))]
