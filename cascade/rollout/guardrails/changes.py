"""What is another in a candidate, as far as guardrails can or cannot compare it with the stable release."""

from __future__ import annotations

from dataclasses import dataclass

from cascade.policy.release import Release, StageSpec
from cascade.stages.fingerprint import fingerprint_of
from cascade.stages.serializers import serializer

__all__ = ["Changes", "changes"]


@dataclass(frozen=True, slots=True)
class Changes:
    """What is not the same. The names are those of `RolloutController`'s arguments.

    ``large_changed``: the stable large stage cannot judge the candidate's order, since there is none, it orders lists or
    the candidate has another. ``small_changed``: the small stages do not score alike. ``depth_changed`` and ``escalation_changed``:
    other candidates are sent to a stage, so that its best score may be another although it scores as before.
    """

    large_changed: bool
    small_changed: bool
    depth_changed: bool
    escalation_changed: bool


def changes(stable: Release, candidate: Release) -> Changes:
    """Compare two releases. Raises ConfigError for a serializer that does not exist."""
    mine, theirs = stable.stages, candidate.stages
    return Changes(
        large_changed=mine.large is None
        or mine.large.orders
        or (theirs.large is not None and not _alike(mine.large, theirs.large)),
        small_changed=mine.small is None or theirs.small is None or not _alike(mine.small, theirs.small),
        depth_changed=(stable.depth, stable.history, stable.limits.max_candidates, stable.mode)
        != (candidate.depth, candidate.history, candidate.limits.max_candidates, candidate.mode),
        escalation_changed=stable.escalation != candidate.escalation or (mine.large is None) != (theirs.large is None),
    )


def _alike(one: StageSpec, other: StageSpec) -> bool:
    """Tell whether two stages score alike: by their fingerprints, wherever their servers are."""
    first, second = (fingerprint_of(spec, serializer(spec.serializer)) for spec in (one, other))
    return first == second
