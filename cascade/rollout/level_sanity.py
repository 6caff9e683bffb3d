"""Find load levels that cannot have been meant: each should cost less than the one before."""

from __future__ import annotations

from collections.abc import Iterator

from cascade.calibration.artefact import CalibrationArtefact
from cascade.policy.escalation_rules import CalibratedEscalation
from cascade.policy.level_bounds import most_pairs
from cascade.policy.levels import at_level, level_names
from cascade.policy.release import Release
from cascade.rollout.sanity import not_meant

__all__ = ["levels_not_meant"]


def levels_not_meant(release: Release, artefact: CalibrationArtefact | None) -> Iterator[str]:
    """Say, one sentence each, which levels are not cheaper than the one before, and what else is odd of one.

    What a query costs on average is for a replay to say; told here is what follows from the rules alone.
    """
    names = level_names(release)
    wholes = [at_level(release, name) for name in names]
    said = set(not_meant(release, artefact))
    for name, before, whole in zip(names[1:], wholes, wholes[1:], strict=False):
        yield from (f"level {name}: {fault}" for fault in _dearer(before, whole))
        read = artefact if whole.calibration is not None else None
        odd = [] if most_pairs(whole) == (0, 0) else list(not_meant(whole, read))
        yield from (f"level {name}: {sentence}" for sentence in odd if sentence not in said)


def _dearer(before: Release, whole: Release) -> Iterator[str]:
    was, now = most_pairs(before), most_pairs(whole)
    for stage, less, more in zip(("small", "large"), was, now, strict=True):
        if more > less:
            yield f"it may score {more} candidates at the {stage} stage, and the level before no more than {less}"
    if now != was:
        return
    same = (before.depth, before.escalation) == (whole.depth, whole.escalation)
    if same and before.budgets == whole.budgets:
        yield "it does what the level before does"
    elif same:
        yield "it differs from the level before in its budgets alone: it sends as much"
    elif _price(whole) < _price(before):
        yield f"its price {_price(whole):g} a pair is below {_price(before):g} of the level before: it escalates more"


def _price(release: Release) -> float:
    rule = release.escalation
    return rule.price_per_pair if isinstance(rule, CalibratedEscalation) else float("inf")
