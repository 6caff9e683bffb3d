"""What must hold of the split that made the records, before any estimate is looked at."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

from cascade.replay.columns import FloatArray
from cascade.replay.logged.estimate import MOST_STANDARD_ERRORS, Guard, numbered
from cascade.replay.logged.gathered import ArmCount, Gathered, Row, Support
from cascade.replay.logged.sources import SplitRelease, is_recorded

__all__ = ["LEAST_FIDELITY", "MOST_DEGRADED", "MOST_UNTOLD", "split_guards"]

LEAST_FIDELITY: Final = 0.99
MOST_DEGRADED: Final = 0.05
MOST_UNTOLD: Final = 0.01


def split_guards(found: Gathered, rows: Sequence[Row]) -> list[Guard]:
    """Return the guards of the releases that traffic was split over; ``rows`` are those that are estimated from."""
    if not found.arms:
        return [Guard("split", False, "no release of it is named", "--arm RELEASE=SHARE for each that made records")]
    named = list(zip(found.arms, found.counts, strict=True))
    return [
        *([_one_split(found)] if is_recorded(found.arms) else []),
        _shares(found),
        *(_fidelity(arm, count) for arm, count in named),
        *(_degraded(arm, count) for arm, count in named),
        _untold(found.counts),
        _support(found.arms, rows),
    ]


def _one_split(found: Gathered) -> Guard:
    others = found.tally["other_split"]
    return Guard(
        "one split",
        not others,
        f"{others} records are of traffic that was split with a release that is not named",
        "records of one rollout: whose the other share was is not in them",
    )


def _shares(found: Gathered) -> Guard:
    if not found.split:
        return Guard("shares", holds=False, seen="no record of a split", wanted="records made while traffic was split")
    queries = numbered([query for query, _, _ in found.split])
    taken = np.array([arm for _, arm, _ in found.split])
    told = np.array([shares for _, _, shares in found.split])
    away = [_standard_errors((taken == arm) - told[:, arm], queries) for arm in range(len(found.arms))]
    seen = ", ".join(
        f"{each.name} {np.mean(taken == arm):.3f} for {told[:, arm].mean():.4g}" for arm, each in enumerate(found.arms)
    )
    whose = "that the records tell" if is_recorded(found.arms) else "that --arm names"
    return Guard(
        "shares",
        max(away) <= MOST_STANDARD_ERRORS,
        f"{seen}: {max(away):.1f} standard errors away",
        f"the split {whose}, within {MOST_STANDARD_ERRORS:g} standard errors",
    )


def _standard_errors(residuals: FloatArray, queries: np.ndarray[tuple[int], np.dtype[np.int64]]) -> float:
    """Return by how many standard errors a mean is away from nought, its records alike within queries."""
    sums = np.bincount(queries, residuals)
    spread = math.sqrt(float(sums @ sums))
    return abs(float(sums.sum())) / spread if spread > 0.0 else 0.0


def _fidelity(arm: SplitRelease, count: ArmCount) -> Guard:
    why = f", {count.mismatched} of them where no calibration held" if count.mismatched else ""
    undegraded = count.records - count.degraded
    return Guard(
        f"fidelity of {arm.name}",
        count.fidelity >= LEAST_FIDELITY,
        f"its replay differs from what was done on {count.unfaithful} of {undegraded} records{why}",
        f"the same on {LEAST_FIDELITY:.0%} at least: the very release, calibration and models that served",
    )


def _degraded(arm: SplitRelease, count: ArmCount) -> Guard:
    reasons = ", ".join(f"{reason} {often}" for reason, often in sorted(count.reasons.items()))
    return Guard(
        f"degraded answers of {arm.name}",
        count.degraded <= MOST_DEGRADED * count.records,
        f"{count.degraded} of {count.records} records" + (f" ({reasons})" if reasons else ""),
        f"at most {MOST_DEGRADED:.0%}: what trouble decided is left out",
    )


def _untold(counts: Sequence[ArmCount]) -> Guard:
    untold = sum(count.untold for count in counts)
    left = sum(count.records - count.degraded for count in counts)
    return Guard(
        "actions told",
        untold <= MOST_UNTOLD * left,
        f"what a release of the split would have done is not known for {untold} of {left} records",
        f"known for {1.0 - MOST_UNTOLD:.0%} at least: rules that read texts, or scores beside answers that are missing",
    )


def _support(arms: Sequence[SplitRelease], rows: Sequence[Row]) -> Guard:
    unsupported = sum(row.support is Support.UNSUPPORTED for row in rows)
    alone = ", and a single release explores nothing" if len(arms) == 1 else ""
    return Guard(
        "support",
        bool(rows) and not unsupported,
        f"on {unsupported} of {len(rows)} records no release of the split does what the target does{alone}",
        "one that does on every record",
    )
