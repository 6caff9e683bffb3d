"""Find what is allowed in a release and cannot have been meant."""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_never

from cascade.calibration.artefact import CalibrationArtefact
from cascade.policy.depth import needed_signals
from cascade.policy.escalation import signals_of_direct
from cascade.policy.escalation_rules import CalibratedEscalation, FusedEscalation, NoEscalation, StaticEscalation
from cascade.policy.level_bounds import deepest
from cascade.policy.release import Release
from cascade.rollout.signal_channels import channels_named
from cascade.signals.view import SMALL

__all__ = ["not_meant"]


def not_meant(release: Release, artefact: CalibrationArtefact | None) -> Iterator[str]:
    """Say, one sentence each, what will not do what it says. ``artefact`` is the calibration, where it is there."""
    depth, most = deepest(release), release.limits.max_candidates
    if depth > most:
        yield f"depth {depth} is above limits.max_candidates {most}: no more than {most} are scored"
    yield from _times(release)
    yield from _sizes(release, min(depth, most))
    yield from _too_early(release)
    if artefact is not None:
        yield from _calibrated(release, artefact, min(depth, most))


def _times(release: Release) -> Iterator[str]:
    budgets = release.budgets
    for name, spec, budget_ms in (
        ("small_ms", release.stages.small, budgets.small_ms),
        ("large_ms", release.stages.large, budgets.large_ms),
    ):
        if spec is not None and budget_ms > budgets.total_ms - budgets.reserve_ms:
            yield f"budgets.{name} {budget_ms:g} is more than total_ms leaves: the deadline ends the stage sooner"


def _too_early(release: Release) -> Iterator[str]:
    asked = needed_signals(release.depth) | signals_of_direct(release.escalation)
    early = sorted(name for name in asked if name.partition(".")[0] == SMALL)
    if early:
        yield f"signals of the small stage are read before it scores, so they are always missing: {', '.join(early)}"


def _sizes(release: Release, depth: int) -> Iterator[str]:
    rule = release.escalation
    match rule:
        case NoEscalation():
            return
        case StaticEscalation():
            sizes = {"top_m": rule.top_m}
        case FusedEscalation():
            sizes = {"top_m": rule.top_m, "safe_top_m": rule.safe_top_m}
        case CalibratedEscalation():
            sizes = {"safe_top_m": rule.safe_top_m}
            if rule.direct is not None:
                sizes["direct.top_m"] = rule.direct.top_m
            yield from _share(rule, depth)
        case _:
            assert_never(rule)
    for name, size in sizes.items():
        if size > depth:
            yield f"escalation.{name} {size} is above the depth {depth}: no more than {depth} go"
        if not size:
            yield f"escalation.{name} is 0: the large stage then scores nothing"


def _share(rule: CalibratedEscalation, depth: int) -> Iterator[str]:
    most = int(rule.max_share * depth + 1e-9)
    if most < 1:
        yield f"escalation.max_share {rule.max_share:g} of the depth {depth} is no candidate: nothing escalates"
    elif rule.rounds > 1 and rule.chunk > most:
        yield f"escalation.chunk {rule.chunk} is above the {most} that max_share allows: there is no second round"


def _calibrated(release: Release, artefact: CalibrationArtefact, depth: int) -> Iterator[str]:
    rule, valid = release.escalation, artefact.valid
    if isinstance(rule, CalibratedEscalation) and rule.rounds > 1 and artefact.second_round is None:
        yield "escalation.rounds is 2 and the calibration has no second round: there is one"
    if isinstance(rule, FusedEscalation | CalibratedEscalation) and rule.k != artefact.k:
        yield f"escalation.k is {rule.k} and the calibration was fitted for {artefact.k}: its prices are for that"
    if depth > valid.most_candidates:
        yield f"depth {depth} is above the {valid.most_candidates} candidates that the calibration holds for"
    if depth < valid.least_candidates:
        yield f"depth {depth} is below the {valid.least_candidates} candidates that the calibration holds for"
    asked = needed_signals(release.depth) | signals_of_direct(release.escalation)
    others = sorted(channels_named(asked) - set(artefact.channels))
    if others:
        yield f"signals read channels that the calibration does not: {', '.join(others)}"
