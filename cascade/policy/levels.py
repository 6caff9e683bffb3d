"""The load levels of a release: each is a release of its own, and the first is the release as it stands."""

from __future__ import annotations

from typing import Final

from cascade.decision import Level
from cascade.errors import ConfigError
from cascade.policy.depth_rules import FixedDepth
from cascade.policy.escalation_rules import NoEscalation, StaticEscalation
from cascade.policy.release import Release
from cascade.types import Request

__all__ = ["NORMAL", "at_level", "changes_means", "level_named", "level_names"]

NORMAL: Final = "normal"
"""The one level of a release that names none."""


def level_names(release: Release) -> tuple[str, ...]:
    """Return the names of a release's levels, the release as it stands first."""
    return tuple(level.name for level in release.levels) or (NORMAL,)


def level_named(release: Release, name: str | None) -> Level:
    """Return a level by name, the first for None. Raises ConfigError naming the levels that there are."""
    names = level_names(release)
    if name is None:
        return Level(names[0], 0)
    if name not in names:
        raise ConfigError(f"level: release {release.release} has no level of that name; it has {', '.join(names)}")
    return Level(name, names.index(name))


def at_level(release: Release, name: str) -> Release:
    """Return the whole release that a level is, the release itself for its first.

    Raises ConfigError where it has no level of that name. What a level does not override is the same object.
    """
    level = level_named(release, name)
    return release.at(release.levels[level.index]) if level.is_above_normal else release


def changes_means(normal: Release, level: Release, request: Request) -> bool:
    """Tell whether a request may be answered by other means at a level than it would be at normal.

    Where rules differ and what they would have chosen is known by the request alone, that is compared: a depth
    of 20 in place of 50 changes nothing for 15 candidates. Else rules that differ count as a change. Budgets do
    not: what they cost is told as a stage's timeout.
    """
    return not request.query.is_blank and _means(normal, request) != _means(level, request)


def _means(release: Release, request: Request) -> tuple[object, ...]:
    """Return how a release goes about a request; equal ones do the same. Nothing at all is the empty tuple."""
    rule = release.depth
    most = min(release.limits.max_candidates, len(request.candidates))
    depth = min(rule.depth, most) if isinstance(rule, FixedDepth) else rule
    small = release.stages.small is not None
    sent = _sent(release, depth)
    if depth == 0 or (not small and sent is None):
        return ()
    return small, depth, None if small and request.small_only else sent


def _sent(release: Release, depth: object) -> object:
    """Return what goes to the large stage: a count where it is known, else the rule; None for nothing."""
    match release.escalation:
        case NoEscalation():
            return None
        case StaticEscalation(top_m=top_m) if isinstance(depth, int):
            return min(top_m, depth) or None
        case rule:
            return rule
