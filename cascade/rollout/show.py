"""Describe a release for a person."""

from __future__ import annotations

from collections.abc import Sequence

from cascade.calibration.artefact import CalibrationArtefact
from cascade.policy.level_specs import LevelSpec
from cascade.rollout.bundle import Bundle, evidence_of
from cascade.rollout.measured import LevelQuality, MeasuredLevels, measured_levels
from cascade.rollout.words import (
    calibration_lines,
    depth_words,
    escalation_words,
    level_words,
    rollout_lines,
    stage_words,
    time_words,
    tuning_words,
)

__all__ = ["description"]


def description(bundle: Bundle) -> list[str]:
    """Return lines: name and digests, mode, stages, depth, escalation, times, levels, rollout, calibration, tunings and evidence.

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
        f"time           {time_words(release.budgets)}; where it is not enough: {release.fallback}",
        *_levels(release.levels, measured_levels(loaded, bundle.source)),
        *_under("rollout", rollout_lines(release.rollout)),
        *_calibration(release.calibration, bundle),
        *_under("tuning", _tunings(bundle)),
        *(f"{kind:<14} {evidence.get(kind, 'none')}" for kind in ("certificate", "report")),
    ]


def _levels(levels: Sequence[LevelSpec], measured: MeasuredLevels) -> list[str]:
    told = [f"{level.name}: {level_words(level)}{_quality(measured.levels.get(level.name))}" for level in levels] or [
        "none beside the release as it stands"
    ]
    return _under("levels", told)


def _under(name: str, lines: Sequence[str]) -> list[str]:
    return [f"{'' if place else name:<14} {line}" for place, line in enumerate(lines)]


def _quality(known: LevelQuality | None) -> str:
    if known is None or known.minus_always_large is None:
        return "; its quality is not measured"
    ndcg = "" if known.ndcg is None else f"nDCG {known.ndcg:.3f}, "
    return f"; {ndcg}{known.minus_always_large:+.4f} to always-large"


def _tunings(bundle: Bundle) -> list[str]:
    tuned = [f"{name} stage: {tuning_words(each.tuning)}" for name, each in bundle.tunings.by_stage.items()]
    return [*tuned, *(f"cannot be used: {why}" for why in bundle.tunings.faults.values())]


def _calibration(digest: str | None, bundle: Bundle) -> list[str]:
    if digest is None:
        return ["calibration    none"]
    artefact: CalibrationArtefact | None = None if bundle.calibration is None else bundle.calibration.artefact
    if artefact is None:
        return [f"calibration    cannot be used: {bundle.fault}"]
    return [f"calibration    {digest}", *(f"               {line}" for line in calibration_lines(artefact))]
