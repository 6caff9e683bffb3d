"""Choose how many candidates the small stage scores."""

from __future__ import annotations

from cascade.policy.release import Depth, Limits

__all__ = ["choose_depth"]


def choose_depth(depth: Depth, limits: Limits, candidates: int) -> int:
    """Return how many of the first candidates are scored: the fixed depth, within the release's limit."""
    return min(depth.depth, limits.max_candidates, candidates)
