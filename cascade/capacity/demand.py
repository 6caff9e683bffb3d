"""How many pairs of a query each stage scores at a level, and how that is known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, assert_never

from cascade.capacity.depth_bounds import depth_bounds
from cascade.capacity.distribution import Distribution
from cascade.capacity.traffic import Traffic
from cascade.policy.escalation_rules import CalibratedEscalation, FusedEscalation, NoEscalation, StaticEscalation
from cascade.policy.release import Release
from cascade.types import SCORING, StageName

__all__ = ["Basis", "Demand", "Evidence", "Unit", "demands", "safe_mode_demands"]

_WHOLE = 1e-9
_LEAST_LIST: Final = 2
"""The order of one text is known: it is not sent."""


class Basis(StrEnum):
    """How the pairs of a query are known: told by the release alone, measured, or only bounded."""

    CONSTANT = "constant"
    RECORDS = "records"
    METRICS = "metrics"
    REPORT = "report"
    WORST = "worst case"


class Unit(StrEnum):
    """What a stage is asked for: pairs, or whole lists where it orders them, each a call."""

    PAIRS = "pairs"
    LISTS = "lists"


@dataclass(frozen=True, slots=True)
class Demand:
    """Mean pairs of a query at a stage, or mean lists where that is the ``unit``.

    ``tokens`` is the distribution of just these pairs where it was seen; else they are like all pairs of the stage.
    """

    pairs: float
    basis: Basis
    detail: str
    tokens: Distribution | None = None
    unit: Unit = Unit.PAIRS


@dataclass(frozen=True, slots=True)
class Evidence:
    """What was measured of a level: mean pairs of a query by stage, and mean lists; None where it was not."""

    basis: Basis
    detail: str
    small: float | None
    large: float | None
    small_tokens: Distribution | None = None
    large_tokens: Distribution | None = None
    large_lists: float | None = None

    def of(self, stage: StageName, unit: Unit) -> tuple[float | None, Distribution | None]:
        """Return pairs and their tokens at a stage, or lists, which have none."""
        if unit is Unit.LISTS:
            return self.large_lists, None
        return (self.small, self.small_tokens) if stage is StageName.SMALL else (self.large, self.large_tokens)


def demands(release: Release, traffic: Traffic, evidence: Sequence[Evidence]) -> dict[StageName, Demand]:
    """Return the demand of each stage of a level.

    What the release says alone stands; else the first evidence that tells; else the most that it may send.
    What was measured on longer lists never exceeds that.
    """
    return {
        stage: _demand(stage, _sends(release, stage), release, traffic, evidence)
        for stage in SCORING
        if _has(release, stage)
    }


def safe_mode_demands(release: Release, traffic: Traffic) -> dict[StageName, Demand] | None:
    """Return the demand while the calibration does not hold for any query, None where the release reads none."""
    rule = release.escalation
    if release.mode == "observe" or not isinstance(rule, FusedEscalation | CalibratedEscalation):
        return None
    share = rule.max_share if isinstance(rule, CalibratedEscalation) else 1.0
    safe = release.model_copy(update={"escalation": StaticEscalation(kind="static", top_m=rule.safe_top_m)})

    def sends(within: float) -> float:
        return min(rule.safe_top_m, _part(share, within))

    small = _demand(StageName.SMALL, _sends(safe, StageName.SMALL), safe, traffic, ())
    return {StageName.SMALL: small, StageName.LARGE: _demand(StageName.LARGE, sends, safe, traffic, ())}


_Sends = Callable[[float], float]
"""The most pairs that a stage scores, of so many candidates within depth."""


def _has(release: Release, stage: StageName) -> bool:
    return (release.stages.small if stage is StageName.SMALL else release.stages.large) is not None


def _unit(release: Release, stage: StageName) -> Unit:
    large = release.stages.large
    return Unit.LISTS if stage is StageName.LARGE and large is not None and large.orders else Unit.PAIRS


def _sends(release: Release, stage: StageName) -> _Sends:
    if release.mode == "observe" or stage is StageName.SMALL:
        return lambda within: within
    rule = release.escalation
    match rule:
        case NoEscalation():
            return lambda within: 0.0
        case StaticEscalation() | FusedEscalation():
            return lambda within: min(rule.top_m, within)
        case CalibratedEscalation():
            direct = 0 if rule.direct is None else rule.direct.top_m
            return lambda within: max(_part(rule.max_share, within), min(direct, within))
        case _:
            assert_never(rule)


def _part(share: float, within: float) -> float:
    """Return the whole candidates that a share of those within depth is, as escalation counts them."""
    return float(int(share * within + _WHOLE))


def _demand(
    stage: StageName, sends: _Sends, release: Release, traffic: Traffic, evidence: Sequence[Evidence]
) -> Demand:
    most_candidates = release.limits.max_candidates
    observes = release.mode == "observe"
    least, most = (most_candidates, most_candidates) if observes else depth_bounds(release.depth)
    asked = traffic.beside_share if observes and stage is StageName.SMALL else 1.0
    unit = _unit(release, stage)

    def sent(within: float) -> float:
        return sends(within) if unit is Unit.PAIRS else float(sends(within) >= _LEAST_LIST)

    def pairs(depth: int) -> float:
        return asked * traffic.candidates.mean_of(lambda count: sent(min(count, depth, most_candidates)))

    high = pairs(most)
    if not isinstance(release.escalation, CalibratedEscalation) or stage is StageName.SMALL or observes or not high:
        low = 0.0 if _may_pass(release, stage) else pairs(least)
        if high - low <= _WHOLE:
            return Demand(high, Basis.CONSTANT, _told(release, stage), unit=unit)
    for each in evidence:
        measured, tokens = each.of(stage, unit)
        if measured is not None:
            return Demand(min(measured, high), each.basis, each.detail, tokens, unit)
    told = "the most that the release may send: nothing tells what it does send"
    return Demand(high, Basis.WORST, told, unit=unit)


def _told(release: Release, stage: StageName) -> str:
    held = " that the calibration holds for; the others are the safe mode's"
    fused = stage is StageName.LARGE and isinstance(release.escalation, FusedEscalation)
    return f"the release tells it for every query{held if fused else ''}"


def _may_pass(release: Release, stage: StageName) -> bool:
    """Tell whether queries may go past the small stage."""
    rule = release.escalation
    direct = isinstance(rule, CalibratedEscalation) and rule.direct is not None
    return stage is StageName.SMALL and direct and release.mode == "cascade"
