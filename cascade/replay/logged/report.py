"""``cascade off-policy`` without its command line: what records say of a target, as plain data without text."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

import numpy as np

from cascade.errors import ConfigError
from cascade.replay.columns import FloatArray, IntArray
from cascade.replay.intervals import CONFIDENCE
from cascade.replay.logged.deciding import Decider
from cascade.replay.logged.estimate import (
    LARGEST_WEIGHT,
    Estimated,
    Guard,
    Predict,
    Weighed,
    estimated,
    numbered,
)
from cascade.replay.logged.features import feature_matrix
from cascade.replay.logged.gathered import LEAST_SHARE, Gathered, Row, Support, gather_logged
from cascade.replay.logged.outcomes import Outcomes
from cascade.replay.logged.shadow_report import shadow_report
from cascade.replay.logged.shadowed import Shadowed
from cascade.replay.logged.sources import Left, SplitRelease, check_split, is_recorded
from cascade.replay.logged.split_guards import split_guards
from cascade.replay.logged.words import figures_told, means_told, number
from cascade.telemetry.records import is_sampled

__all__ = ["VERSION", "Asked", "RewardModel", "off_policy_report"]

VERSION: Final = 1
MOST_WITHOUT_OUTCOME: Final = 0.05
_REFUSED: Final = "refused by a guard"
_Kept = TypeVar("_Kept", Row, Shadowed)

RewardModel = Callable[[FloatArray, FloatArray, FloatArray, IntArray, int], FloatArray]
"""Predict values (n,) of the target's action, from features (n, d), values, weights, numbers of queries and a seed."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What is asked of the records. ``target_told`` is how the report names the target.

    ``without_outcome`` is the reward of a decision that no outcome names; None leaves it out. ``model`` None leaves
    the doubly robust estimates out.
    """

    records: Sequence[Path]
    target: Decider
    target_told: Mapping[str, Any]
    arms: Sequence[SplitRelease] = ()
    outcomes: Outcomes | None = None
    without_outcome: float | None = None
    k: int = 10
    resamples: int = 2000
    seed: int = 0
    model: RewardModel | None = None


def off_policy_report(asked: Asked) -> dict[str, Any]:
    """Return what the records say of the target: coverage, value and cost by weights, and shadow pairs.

    Beside each mapping of figures stand ``intervals`` and ``reasons``. Raises ConfigError for a split that is
    none, and for records and outcomes that cannot be used at all.
    """
    check_split(asked.arms)
    found = gather_logged(asked.records, asked.target, asked.arms, asked.k)
    least, rows = _common_sample(found.rows)
    _, shadows = _common_sample(found.shadows)
    if not rows and not shadows and not found.split:
        raise ConfigError(_no_record(found))
    guards = split_guards(found, rows)
    return {
        "report": "cascade off-policy",
        "version": VERSION,
        "target": dict(asked.target_told),
        "conditions": {
            "k": asked.k,
            "seed": asked.seed,
            "resamples": asked.resamples,
            "confidence": CONFIDENCE,
            "clip": LARGEST_WEIGHT,
            "sample": least,
            "shares": "of the records" if is_recorded(asked.arms) else "as named",
            "without_outcome": asked.without_outcome,
        },
        "counts": _counts(found, rows, asked.outcomes),
        "arms": [_arm(arm, number_, found) for number_, arm in enumerate(asked.arms)],
        "guards": [asdict(guard) for guard in guards],
        "coverage": _coverage(rows, asked),
        "reward": None if asked.outcomes is None else _reward(rows, asked.outcomes, asked, guards),
        "large_pairs": _large_pairs(rows, asked, guards),
        "shadow": shadow_report(shadows, asked.resamples, asked.seed),
        "notes": _notes(found),
    }


def _no_record(found: Gathered) -> str:
    left = found.tally[Left.UNSPLIT] + found.tally[Left.THIN]
    if left:
        return (
            f"{left} records are of the split's releases, and none of a moment when each had {LEAST_SHARE:.0%} or more"
        )
    return "no record is of a release of the split, or of mode observe"


def _common_sample(kept: Sequence[_Kept]) -> tuple[float | None, list[_Kept]]:
    """Return the smallest share of queries that was recorded, and what is kept of the queries that all recorded.

    The sample is drawn by the hash of the query: a query outside it was recorded under some releases only, and
    its propensities would not be those of the split.
    """
    if not kept:
        return None, []
    least = min(each.sample for each in kept)
    return least, [each for each in kept if least == 1.0 or is_sampled(each.query, least)]


def _counts(found: Gathered, rows: Sequence[Row], outcomes: Outcomes | None) -> dict[str, Any]:
    told: dict[str, Any] = {
        "used": len(rows),
        "outside_common_sample": len(found.rows) - len(rows),
        **{name: found.tally[name] for name in _TALLIES},
        **asdict(found.unread),
        "keys": len(found.keys),
    }
    if outcomes is not None:
        told["outcomes"] = len(outcomes.rewards)
        told["outcomes_repeated"] = outcomes.repeated
        told["outcomes_of_no_record"] = len(outcomes.rewards.keys() - found.decisions)
    return told


_TALLIES: Final = (
    "records",
    "repeated",
    "shadows",
    "other_release",
    "unsplit",
    "thin",
    "undecided",
    "degraded",
    "observed_incomplete",
    "observed_untold",
)


def _arm(arm: SplitRelease, at: int, found: Gathered) -> dict[str, Any]:
    count = found.counts[at]
    return {
        "release": arm.name,
        "release_digest": arm.digest,
        "share": arm.share if arm.share is not None else _mean_share(found, at),
        "records": count.records,
        "degraded": count.degraded,
        "degraded_by": dict(sorted(count.reasons.items())),
        "unfaithful": count.unfaithful,
        "without_calibration": count.mismatched,
        "untold": count.untold,
        "fidelity": number(count.fidelity) if count.records > count.degraded else None,
    }


def _mean_share(found: Gathered, at: int) -> float | None:
    return number(float(np.mean([shares[at] for _, _, shares in found.split]))) if found.split else None


def _coverage(rows: Sequence[Row], asked: Asked) -> dict[str, Any] | None:
    """Return on which share of the records the target does what was done, over all and by query class."""
    if not rows:
        return None

    def told(some: Sequence[Row]) -> dict[str, Any]:
        columns = {"same_set": [row.same_set for row in some]}
        if asked.arms:
            columns["same_answer"] = [row.is_covered for row in some]
            columns |= {each.value: [row.support is each for row in some] for each in Support}
        return means_told(columns, [row.query for row in some], asked.resamples, asked.seed)

    classes = sorted({row.query_class for row in rows})
    by_class = {each.value: told([row for row in rows if row.query_class is each]) for each in classes}
    return {**told(rows), "by_class": by_class}


def _reward(rows: Sequence[Row], outcomes: Outcomes, asked: Asked, guards: Sequence[Guard]) -> dict[str, Any]:
    """Return the target's mean reward, or why it is refused."""
    known = [row for row in rows if row.decision_id in outcomes.rewards]
    if not known:
        raise ConfigError("outcomes: none is of a record that the target could be estimated from")
    without = len(rows) - len(known)
    used = known if asked.without_outcome is None else list(rows)
    rewards = np.array([outcomes.rewards.get(row.decision_id, asked.without_outcome or 0.0) for row in used])
    complete = Guard(
        "outcomes",
        asked.without_outcome is not None or without <= MOST_WITHOUT_OUTCOME * len(rows),
        f"{without} of {len(rows)} records have none",
        f"at most {MOST_WITHOUT_OUTCOME:.0%}; or say with --without-outcome what such a record is worth",
    )
    told = _estimate(used, rewards, asked, [*guards, complete])
    return {"range": [number(rewards.min()), number(rewards.max())], "without_outcome": without, **told}


def _large_pairs(rows: Sequence[Row], asked: Asked, guards: Sequence[Guard]) -> dict[str, Any] | None:
    """Return how many pairs the target sends: counted where every record tells it, else estimated, or refused."""
    if not rows:
        return None
    counted = np.array([row.target_pairs for row in rows])
    queries = [row.query for row in rows]
    known = np.isfinite(counted)
    columns = {"logged": np.array([row.logged_pairs for row in rows])}
    told: dict[str, Any] = {"known": number(known.mean())}
    if known.all():
        return told | {"refused": [], **means_told(columns | {"target": counted}, queries, asked.resamples, asked.seed)}
    if asked.arms:
        return told | _estimate(rows, columns["logged"], asked, guards)
    refused = [guard.refusal for guard in guards if not guard.holds]
    return told | {"refused": refused, **means_told(columns, queries, asked.resamples, asked.seed)}


def _estimate(rows: Sequence[Row], values: FloatArray, asked: Asked, guards: Sequence[Guard]) -> dict[str, Any]:
    if not asked.arms:
        return {"refused": [guard.refusal for guard in guards if not guard.holds]}
    weighed = Weighed(
        values=values,
        propensities=np.array([row.propensity for row in rows]),
        covered=np.array([float(row.is_covered) for row in rows]),
        queries=numbered([row.query for row in rows]),
    )
    done = estimated(weighed, asked.resamples, asked.seed, _predict(rows, asked))
    refused = [*(guard.refusal for guard in guards if not guard.holds), *done.refusals]
    return {
        "refused": refused,
        **_weights(done),
        **figures_told(done.figures, _REFUSED if refused else None, keep={"logged"}),
    }


def _predict(rows: Sequence[Row], asked: Asked) -> Predict | None:
    model = asked.model
    if model is None:
        return None
    features = feature_matrix([row.features for row in rows])
    return lambda values, weights, queries: model(features, values, weights, queries, asked.seed)


def _weights(done: Estimated) -> dict[str, Any]:
    return {
        "records": done.records,
        "queries": done.queries,
        "weights": {
            "mean": number(done.mean_weight),
            "standard_error": number(done.standard_error),
            "effective_sample_size": number(done.effective_sample_size),
            "least_propensity": number(done.least_propensity),
            "clipped_mass": number(done.clipped_mass),
        },
        "guards": [asdict(guard) for guard in done.guards],
    }


def _notes(found: Gathered) -> list[str]:
    notes = []
    if len(found.keys) > 1:
        notes.append(f"{len(found.keys)} hash keys: a query under two of them counts as two queries")
    degraded = sum(count.degraded for count in found.counts) + found.tally["degraded"]
    if degraded:
        notes.append(f"{degraded} answers that trouble decided are left out: the estimates are of the others")
    unfaithful = sum(count.unfaithful for count in found.counts)
    if unfaithful:
        notes.append(f"{unfaithful} records are not what their release decides by them, and are left out")
    return notes
