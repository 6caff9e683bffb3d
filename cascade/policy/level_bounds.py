"""Work out what a level may send to the stages at most, from its rules alone."""

from __future__ import annotations

from typing import assert_never

from cascade.policy.depth import AnyDepth
from cascade.policy.depth_rules import FixedDepth, GainDepth, GreedyDepth, SignalsDepth, SkipDepth
from cascade.policy.escalation import most_escalated
from cascade.policy.release import Release

__all__ = ["deepest", "most_pairs"]


def deepest(release: Release) -> int:
    """Return the greatest depth that a release's rule gives, its limit aside."""
    return _deepest(release.depth)


def most_pairs(release: Release) -> tuple[int, int]:
    """Return the most pairs of a request that the small stage may score, and the most that the large one may."""
    most = release.limits.max_candidates
    if release.mode == "observe":
        return 0, most
    depth = min(deepest(release), most)
    small = depth if release.stages.small is not None else 0
    return small, most_escalated(release.escalation, depth) if release.stages.large is not None else 0


def _deepest(rule: AnyDepth) -> int:
    match rule:
        case FixedDepth():
            return rule.depth
        case SkipDepth():
            return rule.default
        case GreedyDepth():
            depths = [*rule.classes.values(), rule.default]
        case SignalsDepth():
            depths = [*(one.depth for one in rule.rules), rule.default]
        case GainDepth():
            depths = [at.depth for at in rule.depths]
        case _:
            assert_never(rule)
    return min(max(*depths, rule.least), rule.most)
