"""Choose how many candidates the small stage scores."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, assert_never

from cascade.policy.conditions import holds, signal_name
from cascade.policy.depth_rules import (
    AdaptiveDepth,
    FixedDepth,
    GainDepth,
    GreedyDepth,
    SignalsDepth,
    SkipDepth,
)
from cascade.policy.release import Limits
from cascade.signals.catalogue import CLASS
from cascade.signals.compute import Signals

__all__ = ["AnyDepth", "DepthChoice", "DepthReason", "choose_depth", "needed_signals", "predicted_gains"]

AnyDepth = SkipDepth | FixedDepth | GreedyDepth | SignalsDepth | GainDepth

_DUPLICATE: Final = "head.duplicate"
_SEPARATION: Final = "channels.separation"
_FARTHEST_Z: Final = 5.0


class DepthReason(StrEnum):
    """What decided the depth. The list is closed."""

    FIXED = "fixed"
    SKIP = "skip"
    DEFAULT = "default"
    CLASS = "class"
    RULE = "rule"
    GAIN = "gain"
    DUPLICATE_HEAD = "duplicate-head"
    NO_ANSWER = "no-answer"
    OBSERVE = "observe"
    NOT_ADMITTED = "not-admitted"


@dataclass(frozen=True, slots=True)
class DepthChoice:
    """How many of the first candidates are scored, and why.

    ``rule`` is the position of the rule that matched, where one did, vetoed or not.
    """

    depth: int
    why: DepthReason
    rule: int | None = None


def choose_depth(rule: AnyDepth, limits: Limits, count: int, signals: Signals | None) -> DepthChoice:
    """Return the depth for a query with ``count`` candidates, within the rule's bounds, the limit and the count.

    Near-duplicates at the head veto a skip; a query whose head no channel tells from its tail is not
    scored deeper than the default. Both need their signal: a missing one vetoes nothing. Pure, and
    defined for any signals: a missing one makes conditions fail and gains use its missing term. None for
    ``signals`` is the same as all missing.
    """
    choice = _choose(rule, signals or Signals())
    return DepthChoice(min(choice.depth, limits.max_candidates, count), choice.why, choice.rule)


def needed_signals(rule: AnyDepth) -> frozenset[str]:
    """Return the names of the signals that the rule may read, so that no others need be computed."""
    match rule:
        case FixedDepth():
            return frozenset()
        case SkipDepth():
            return frozenset({_DUPLICATE})
        case GreedyDepth():
            return frozenset({CLASS}) | _vetoes(rule, [*rule.classes.values()])
        case SignalsDepth():
            asked = (signal_name(condition) for one in rule.rules for condition in one.when)
            return frozenset(asked) | _vetoes(rule, [one.depth for one in rule.rules])
        case GainDepth():
            asked = (one.signal for one in rule.signals)
            return frozenset(asked) | _vetoes(rule, [at.depth for at in rule.depths])
        case _:
            assert_never(rule)


def _vetoes(rule: AdaptiveDepth, depths: Sequence[int]) -> frozenset[str]:
    skips, deepens = 0 in depths, max(depths, default=0) > rule.default
    return frozenset(name for name, read in ((_DUPLICATE, skips), (_SEPARATION, deepens)) if read)


def _choose(rule: AnyDepth, signals: Signals) -> DepthChoice:
    match rule:
        case FixedDepth():
            return DepthChoice(rule.depth, DepthReason.FIXED)
        case SkipDepth():
            repeats = signals.get(_DUPLICATE) >= rule.duplicate_head
            why = DepthReason.DUPLICATE_HEAD if repeats else DepthReason.SKIP
            return DepthChoice(rule.default if repeats else 0, why)
        case GreedyDepth():
            return _vetoed(rule, _by_class(rule, signals), signals)
        case SignalsDepth():
            return _vetoed(rule, _by_rules(rule, signals), signals)
        case GainDepth():
            return _vetoed(rule, _by_gain(rule, signals), signals)
        case _:
            assert_never(rule)


def _by_class(rule: GreedyDepth, signals: Signals) -> DepthChoice:
    if signals.query_class is None or signals.query_class not in rule.classes:
        return DepthChoice(rule.default, DepthReason.DEFAULT)
    return DepthChoice(rule.classes[signals.query_class], DepthReason.CLASS)


def _by_rules(rule: SignalsDepth, signals: Signals) -> DepthChoice:
    for position, one in enumerate(rule.rules):
        if all(holds(condition, signals) for condition in one.when):
            return DepthChoice(one.depth, DepthReason.RULE, position)
    return DepthChoice(rule.default, DepthReason.DEFAULT)


def _vetoed(rule: AdaptiveDepth, choice: DepthChoice, signals: Signals) -> DepthChoice:
    depth, why = choice.depth, choice.why
    if not depth:
        if not signals.get(_DUPLICATE) >= rule.duplicate_head:  # also where it is missing
            return choice
        depth, why = rule.default, DepthReason.DUPLICATE_HEAD
    if depth > rule.default and signals.get(_SEPARATION) < rule.answer_separation:
        depth, why = rule.default, DepthReason.NO_ANSWER
    return DepthChoice(min(max(depth, rule.least), rule.most), why, choice.rule)


def predicted_gains(rule: GainDepth, signals: Signals) -> list[float]:
    """Return the gain predicted at each depth of the rule's grid: intercept + w . z + the terms of missing signals."""
    standardised = [_standardised(signals.get(one.signal), one.mean, one.sd) for one in rule.signals]
    return [
        at.intercept
        + sum(
            missing if z is None else weight * z
            for z, weight, missing in zip(standardised, at.weights, at.missing, strict=True)
        )
        for at in rule.depths
    ]


def _standardised(value: float, mean: float, sd: float) -> float | None:
    if math.isnan(value):
        return None
    return min(_FARTHEST_Z, max(-_FARTHEST_Z, (value - mean) / sd))


def _by_gain(rule: GainDepth, signals: Signals) -> DepthChoice:
    """Climb the upper hull of gain over depth while a step gains more for each candidate than the price.

    The hull's steps fall and do not depend on the price, so the depth reached is argmax(gain - price x
    depth), ties to the shallower, and a greater price never reaches deeper: the price meets each step in
    one comparison. Near-duplicates at the head take the depth 0 out of the grid, as this keeps it monotone.
    """
    grid = [(at.depth, gain) for at, gain in zip(rule.depths, predicted_gains(rule, signals), strict=True)]
    depth = _climbed(grid, rule.price_per_candidate)
    if not grid[0][0] and signals.get(_DUPLICATE) >= rule.duplicate_head:
        why = DepthReason.GAIN if depth else DepthReason.DUPLICATE_HEAD
        return DepthChoice(_climbed(grid[1:], rule.price_per_candidate), why)
    return DepthChoice(depth, DepthReason.GAIN)


def _climbed(grid: Sequence[tuple[int, float]], price: float) -> int:
    here = 0
    while here + 1 < len(grid):
        depth, gain = grid[here]
        steps = [(deeper_gain - gain) / (deeper - depth) for deeper, deeper_gain in grid[here + 1 :]]
        steepest = max(steps)
        if not steepest > price:
            break
        here += 1 + steps.index(steepest)
    return grid[here][0]
