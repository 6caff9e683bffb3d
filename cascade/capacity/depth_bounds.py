"""Between which depths a rule may choose."""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_never

from cascade.policy.depth import AnyDepth
from cascade.policy.depth_rules import AdaptiveDepth, FixedDepth, GainDepth, GreedyDepth, SignalsDepth, SkipDepth

__all__ = ["depth_bounds"]


def depth_bounds(rule: AnyDepth) -> tuple[int, int]:
    """Return the least and the greatest depth that a rule may choose for a query with candidates enough."""
    match rule:
        case FixedDepth():
            return rule.depth, rule.depth
        case SkipDepth():  # near-duplicates at the head veto the skip
            return 0, rule.default
        case GreedyDepth():
            return _bounds(rule, [*rule.classes.values(), rule.default])
        case SignalsDepth():
            return _bounds(rule, [*(one.depth for one in rule.rules), rule.default])
        case GainDepth():
            depths = [at.depth for at in rule.depths]
            vetoed = depths[-1] > rule.default or not depths[0]
            return _bounds(rule, [*depths, *([rule.default] if vetoed else [])])
        case _:
            assert_never(rule)


def _bounds(rule: AdaptiveDepth, depths: Iterable[int]) -> tuple[int, int]:
    """Return the bounds of some depths as the rule clamps them; only a skip is below its least."""
    reached = [min(max(depth, rule.least), rule.most) if depth else 0 for depth in depths]
    return min(reached), max(reached)
