"""What a release would have decided, had it answered: from scores that are all known, and without a clock."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cascade.calibration.calibrated import Calibration
from cascade.decision import Action, Estimates
from cascade.policy.depth import DepthReason, choose_depth
from cascade.policy.escalation import Choice, choose_round, goes_direct
from cascade.policy.inputs import known_within, signals_of
from cascade.policy.release import Release
from cascade.types import QueryClass, Request

__all__ = ["Shadow", "shadow_decision"]


@dataclass(frozen=True, slots=True)
class Shadow:
    """A decision that was not taken. ``escalated`` holds indices of candidates, ``rounds`` counts those of the large stage.

    ``query_class`` and ``signals`` are those that the release's rules read.
    """

    depth: int
    depth_reason: DepthReason
    action: Action
    escalated: tuple[int, ...]
    rounds: int
    estimates: Estimates | None
    misfit: str | None
    query_class: QueryClass | None
    signals: Mapping[str, float]


def shadow_decision(
    release: Release,
    request: Request,
    small: Mapping[int, float],
    large: Mapping[int, float],
    calibration: Calibration | None,
) -> Shadow:
    """Decide as the release does in mode ``cascade``, with stages that answer ``small`` and ``large`` in time.

    Scores go by candidate index; an index that is absent was left out by its stage. The second round
    sees the large scores that the first would have asked for, and no others.
    """
    signals = signals_of(release, request)
    chosen = choose_depth(release.depth, release.limits, len(request.candidates), signals)
    choice = Choice((), Action.NONE)
    escalated: tuple[int, ...] = ()
    rounds = 0
    direct = goes_direct(release.escalation, signals)
    if direct and chosen.depth:
        choice, escalated, rounds = Choice((), Action.DIRECT), tuple(range(min(direct, chosen.depth))), 1
    elif chosen.depth:
        first: Choice | None = None
        while first is None or choice.more:
            seen = {index: large[index] for index in escalated if index in large}
            known = known_within(chosen.depth, request.candidates, small, seen)
            first = choice = choose_round(release.escalation, known, calibration, first)
            escalated += choice.indices
            rounds += bool(choice.indices)
            if not any(index in large for index in choice.indices):
                break
    return Shadow(
        depth=chosen.depth,
        depth_reason=chosen.why,
        action=choice.action,
        escalated=escalated,
        rounds=rounds,
        estimates=choice.estimates,
        misfit=choice.misfit,
        query_class=signals.query_class,
        signals=signals.values,
    )
