"""Go through records once, and keep of each what its estimates need."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final

from cascade.decision import DegradedReason
from cascade.errors import ConfigError
from cascade.replay.logged.deciding import Decider, Taken, is_faithful, taken
from cascade.replay.logged.estimate import LARGEST_WEIGHT
from cascade.replay.logged.features import features_of
from cascade.replay.logged.shadowed import Shadowed, shadowed
from cascade.replay.logged.sources import SplitRelease, check_scorers, is_recorded, left_out, shares_at
from cascade.replay.record_lines import DecisionLine, HeadLine, Lines, Unread
from cascade.types import QueryClass

__all__ = ["LEAST_SHARE", "ArmCount", "Gathered", "Row", "Support", "gather_logged"]

_NEVER_KEPT: Final = -1
LEAST_SHARE: Final = 1.0 / LARGEST_WEIGHT
"""Where a release had less than this, what only it does would weigh more than weights are clipped at."""


class Support(StrEnum):
    """Whether some release of the split takes the target's action. What a record cannot tell is undetermined."""

    SUPPORTED = "supported"
    UNSUPPORTED = "unsupported"
    UNDETERMINED = "undetermined"


@dataclass(frozen=True, slots=True)
class Row:
    """What is kept of a record.

    ``same_set`` tells that the target asks the stages of the very same candidates, and ``is_covered`` that it
    answers the same too. ``propensity`` of the logged action is NaN where no release of the split is named, and
    ``target_pairs`` where the record does not tell all that the target would send.
    """

    decision_id: str
    query: str
    query_class: QueryClass
    sample: float
    arm: int
    same_set: bool
    is_covered: bool
    propensity: float
    support: Support
    logged_pairs: float
    target_pairs: float
    features: dict[str, float]


@dataclass(slots=True)
class ArmCount:
    """What became of the records of one release of the split.

    ``degraded`` ones were decided by trouble; ``unfaithful`` ones are not what the release decides by its record;
    of these, ``mismatched`` ones had no calibration that held. Of ``untold`` ones it cannot be told what some
    release of the split would have done. ``reasons`` counts what the degraded ones were degraded by.
    """

    records: int = 0
    degraded: int = 0
    unfaithful: int = 0
    mismatched: int = 0
    untold: int = 0
    reasons: Counter[str] = field(default_factory=Counter)

    @property
    def fidelity(self) -> float:
        """Return the share of the undegraded records that the release decides as it did, NaN without any."""
        undegraded = self.records - self.degraded
        return 1.0 - self.unfaithful / undegraded if undegraded else math.nan


@dataclass(slots=True)
class Gathered:
    """What some files of records say of a target.

    ``split`` holds the query and the arm of every record of an arm, and the shares that all arms had then. ``tally``
    counts records by what became of them, and ``decisions`` are the ids of all of them.
    """

    arms: Sequence[SplitRelease]
    rows: list[Row] = field(default_factory=list)
    shadows: list[Shadowed] = field(default_factory=list)
    split: list[tuple[str, int, tuple[float, ...]]] = field(default_factory=list)
    counts: list[ArmCount] = field(default_factory=list)
    tally: Counter[str] = field(default_factory=Counter)
    decisions: set[str] = field(default_factory=set)
    keys: set[str] = field(default_factory=set)
    unread: Unread = field(default_factory=Unread)


def gather_logged(paths: Sequence[Path], target: Decider, arms: Sequence[SplitRelease], k: int) -> Gathered:
    """Return what the records in some files say of ``target``; ``arms`` are the releases that traffic was split over.

    A decision that is there twice counts once. Raises ConfigError for a file that cannot be read, two decisions of
    one id, a record of other scorers than the target's or the arms', and where no record is left.
    """
    found = Gathered(arms, counts=[ArmCount() for _ in arms])
    lines = Lines(paths)
    by_digest = {arm.digest: number for number, arm in enumerate(arms)}
    checked: set[str] = set()
    seen: dict[str, tuple[str, str]] = {}
    for line in lines:
        head = lines.heads[line.head]
        found.tally["records"] += 1
        if _is_repeated(line, seen):
            found.tally["repeated"] += 1
            continue
        if line.head not in checked:
            for decider in (target, *(arm.decider for arm in arms)):
                check_scorers(head, decider.release)
            checked.add(line.head)
        found.keys.add(head.key)
        if head.mode == "observe":
            _keep_shadow(found, line, target, k)
        _keep_row(found, line, head, target, by_digest.get(head.release_digest, _NEVER_KEPT))
    found.unread = lines.unread
    found.tally["shadows"] = lines.shadows
    found.decisions = set(seen)
    if not found.tally["records"]:
        raise ConfigError("no record was found")
    return found


def _is_repeated(line: DecisionLine, seen: dict[str, tuple[str, str]]) -> bool:
    """Tell whether the very same decision was there before. Raises ConfigError for another one of its id."""
    told = (line.query_hash, line.time.isoformat())
    before = seen.setdefault(line.decision_id, told)
    if before is told:
        return False
    if before != told:
        raise ConfigError("records: two decisions have one decision_id; outcomes could not be told apart")
    return True


def _keep_shadow(found: Gathered, line: DecisionLine, target: Decider, k: int) -> None:
    if not line.is_complete or line.is_degraded:
        found.tally["observed_incomplete"] += 1
        return
    shadow = shadowed(target, line, k)
    if shadow is None:
        found.tally["observed_untold"] += 1
    else:
        found.shadows.append(shadow)


def _keep_row(found: Gathered, line: DecisionLine, head: HeadLine, target: Decider, arm: int) -> None:
    observed = head.mode == "observe"
    if arm == _NEVER_KEPT and (found.arms or observed):
        found.tally["other_release"] += not observed
        found.tally["other_split"] += line.arm_probability < 1.0
    elif not line.depth_reason:
        found.tally["undecided"] += 1  # a blank query, or a fault before anything was decided
    elif not found.arms:
        found.tally["degraded"] += line.is_degraded
        if not line.is_degraded:
            found.rows.append(_row(line, arm, taken(target, line, observed=observed), None, (), ()))
    else:
        shares = shares_at(found.arms, arm, line.arm_probability)
        left = left_out(shares, LEAST_SHARE) if is_recorded(found.arms) else None
        if left is not None:
            found.tally[left] += 1
            return
        found.split.append((line.query_hash, arm, shares))
        every = _of_split(found, line, arm, observed=observed)
        if every is not None:
            of_target = taken(target, line, observed=observed)
            found.rows.append(_row(line, arm, of_target, every[arm], every, shares))


def _of_split(found: Gathered, line: DecisionLine, arm: int, *, observed: bool) -> list[Taken] | None:
    """Return what each release of the split does, None where the record is none to estimate from, and count it."""
    count = found.counts[arm]
    count.records += 1
    if line.is_degraded:
        count.degraded += 1
        count.reasons.update(line.degraded)
        return None
    every = [taken(each.decider, line, observed=observed) for each in found.arms]
    own = every[arm]
    if own is not None and not is_faithful(own, line):
        count.unfaithful += 1
        count.mismatched += DegradedReason.CALIBRATION_MISMATCH in line.degraded
        return None
    known = [one for one in every if one is not None]
    count.untold += len(known) < len(every)
    return known if len(known) == len(every) else None


def _row(
    line: DecisionLine,
    arm: int,
    of_target: Taken | None,
    own: Taken | None,
    every: Sequence[Taken],
    shares: Sequence[float],
) -> Row:
    return Row(
        decision_id=line.decision_id,
        query=line.query_hash,
        query_class=line.q_class,
        sample=line.recorded,
        arm=arm,
        same_set=of_target is not None and _same_set(of_target, own, line),
        is_covered=of_target is not None and own is not None and of_target.is_same(own, line.top_n),
        propensity=_propensity(own, every, shares, line.top_n),
        support=_support(of_target, every, line.top_n),
        logged_pairs=float(len(line.escalated)),
        target_pairs=float(len(of_target.sent)) if of_target is not None and of_target.whole else math.nan,
        features=features_of(line),
    )


def _same_set(of_target: Taken, own: Taken | None, line: DecisionLine) -> bool:
    small = line.small_depth > 0 if own is None else own.small
    done = (line.depth, small, frozenset(line.escalated))
    return of_target.whole and (of_target.depth, of_target.small, of_target.sent) == done


def _propensity(own: Taken | None, every: Sequence[Taken], shares: Sequence[float], top_n: int) -> float:
    """Return the share of the split that takes the logged action.

    It is exact: a release that takes it has every score that it asks for in the record.
    """
    if own is None:
        return math.nan
    return math.fsum(share for share, one in zip(shares, every, strict=True) if one.is_same(own, top_n))


def _support(of_target: Taken | None, every: Sequence[Taken], top_n: int) -> Support:
    if of_target is None:
        return Support.UNDETERMINED
    if any(one.is_same(of_target, top_n) for one in every):
        return Support.SUPPORTED
    return Support.UNDETERMINED if any(one.may_be_same(of_target) for one in every) else Support.UNSUPPORTED
