"""Everything a report says of some queries, computed from sweeps on one set of resamples."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from cascade.replay.columns import FloatArray, IntArray
from cascade.replay.curves import (
    LEVELS,
    Curve,
    area_10_50,
    cost_at_recovered,
    curve_of,
    ends_of,
    gap_is_shown,
    quality_at_cost,
)
from cascade.replay.intervals import Figure, Resamples, figure, minus, resampled, undefined
from cascade.replay.points import Point
from cascade.replay.regret import best_utility, regrets
from cascade.replay.sweep import Metric, Sweep

__all__ = ["BASELINES", "Contest", "Difference", "Measured", "measure"]

BASELINES: Final = ("static", "static-fused", "static-final")
_NOT_SHOWN: Final = "Q_large - Q_small is not above zero beyond its interval, so that no share of it can be recovered"
_NOT_REACHED: Final = "this level is not reached"
_ONE_ONLY: Final = "this level is reached by one of the two only"
_ONE_SETTING: Final = "the policy has one setting and no curve"
_NO_TOKENS: Final = "the table does not count tokens"
_SILVER: Final = "the table has no judgements"


@dataclass(frozen=True, slots=True)
class Contest:
    """Policies on the same queries, and the setting of each at which it is reported, both by name.

    ``price`` is what a pair at the large stage costs, in units of the metric of the sweeps.
    """

    sweeps: Mapping[str, Sweep]
    points: Mapping[str, Point]
    price: float

    def take(self, queries: IntArray) -> Contest:
        """Return the same policies at the same settings on some of the queries."""
        sweeps = {name: sweep.take(queries) for name, sweep in self.sweeps.items()}
        points = {name: Point(sweeps[name], point.odds, point.chosen) for name, point in self.points.items()}
        return Contest(sweeps, points, self.price)


@dataclass(frozen=True, slots=True)
class Difference:
    """By how much one policy is above another on the same queries. Costs are better below zero.

    ``at_equal_cost`` is the policy's quality at its own setting minus the baseline's where it sends
    as many pairs.
    """

    name: str
    baseline: str
    area_10_50: Figure
    cost_at_recovered: Mapping[str, Figure]
    at_equal_cost: Figure


@dataclass(frozen=True, slots=True)
class Measured:
    """What is known of some queries. Curves are points (share of pairs, value), cheapest first."""

    queries: int
    gap: Figure
    shown: bool
    policies: Mapping[str, Mapping[str, Figure]]
    curves: Mapping[str, list[tuple[float, float]] | None]
    absolute_curves: Mapping[str, list[tuple[float, float]]]
    cost_at_recovered: Mapping[str, Mapping[str, Figure]]
    area_10_50: Mapping[str, Figure]
    differences: tuple[Difference, ...]


def measure(contest: Contest, resamples: int, seed: int) -> Measured:
    """Measure every policy and its differences to the baselines on the same resamples of the queries."""
    sweeps = contest.sweeps
    count = sweeps["small"].quality.shape[1]
    drawn = resampled(count, resamples, seed)
    ends = ends_of(sweeps["small"], sweeps["large"], drawn)
    shown, gap = gap_is_shown(ends, count)
    curves = {name: curve_of(sweep, ends, drawn) for name, sweep in sweeps.items() if len(sweep.settings) > 1}
    areas = {name: area_10_50(curve) for name, curve in curves.items()} if shown else {}
    costs = {name: _costs(curve) for name, curve in curves.items()} if shown else {}
    comparing = _Comparing(contest, drawn, curves, areas, costs, ends.pairs)
    best = best_utility(sweeps["first-stage"], sweeps["static"], contest.price)
    return Measured(
        queries=count,
        gap=gap,
        shown=shown,
        policies={
            name: _at_point(point, drawn, ends.pairs, best, contest.price) for name, point in contest.points.items()
        },
        curves={name: _points(curve.share[0], curve.recovered[0]) if shown else None for name, curve in curves.items()},
        absolute_curves={name: _points(curve.share[0], curve.quality[0]) for name, curve in curves.items()},
        cost_at_recovered={name: _levels(costs.get(name), count) for name in curves},
        area_10_50={name: _area(areas.get(name), count) for name in curves},
        differences=tuple(
            comparing.difference(name, baseline)
            for name in ("static-fused", "random", "policy")
            for baseline in BASELINES
            if name in sweeps and baseline in curves and name != baseline
        ),
    )


def _costs(curve: Curve) -> dict[str, FloatArray]:
    return {f"{level:.2f}": cost_at_recovered(curve, level) for level in LEVELS}


def _levels(costs: Mapping[str, FloatArray] | None, queries: int) -> dict[str, Figure]:
    if costs is None:
        return {f"{level:.2f}": undefined(_NOT_SHOWN) for level in LEVELS}
    return {level: figure(draws, queries, _NOT_REACHED) for level, draws in costs.items()}


def _area(draws: FloatArray | None, queries: int) -> Figure:
    return undefined(_NOT_SHOWN) if draws is None else figure(draws, queries, _NOT_SHOWN)


def _points(share: FloatArray, values: FloatArray) -> list[tuple[float, float]]:
    return list(zip(share.tolist(), values.tolist(), strict=True))


def _at_point(
    point: Point, drawn: Resamples, large_pairs: FloatArray, best: FloatArray, price: float
) -> dict[str, Figure]:
    """Return the figures of one policy at its setting. A count is a query's mean."""
    sweep = point.sweep

    def mean(values: FloatArray) -> Figure:
        return figure(drawn.means(point.mean(values)), drawn.queries, "not counted for every pair")

    metrics = {metric: mean(values) for metric, values in sweep.metrics.items()}
    pairs = drawn.means(point.mean(sweep.pairs))
    return {
        **{metric.value: metrics.get(metric, undefined(_SILVER)) for metric in Metric},
        "large_pairs": figure(pairs, drawn.queries, ""),
        "large_share": figure(pairs / large_pairs, drawn.queries, ""),
        "large_tokens": undefined(_NO_TOKENS) if sweep.tokens is None else mean(sweep.tokens),
        "regret": mean(regrets(sweep, best, price)),
        "engaged": mean(sweep.engaged.astype(np.float64)),
        "judged": mean(sweep.judged),
    }


@dataclass(frozen=True, slots=True)
class _Comparing:
    """What differences between policies need, in each resample."""

    contest: Contest
    drawn: Resamples
    curves: Mapping[str, Curve]
    areas: Mapping[str, FloatArray]
    costs: Mapping[str, Mapping[str, FloatArray]]
    large_pairs: FloatArray

    def difference(self, name: str, baseline: str) -> Difference:
        count = self.drawn.queries
        point = self.contest.points[name]
        share = self.drawn.means(point.mean(point.sweep.pairs)) / self.large_pairs
        theirs = quality_at_cost(self.curves[baseline], share)
        own = figure(self.drawn.means(point.mean(point.sweep.quality)) - theirs, count, "")
        if name not in self.areas:
            absent = undefined(_NOT_SHOWN if name in self.curves else _ONE_SETTING)
            return Difference(name, baseline, absent, {f"{level:.2f}": absent for level in LEVELS}, own)
        ours, other = self.costs[name], self.costs[baseline]
        levels = {level: figure(minus(ours[level], other[level]), count, _ONE_ONLY) for level in ours}
        area = figure(minus(self.areas[name], self.areas[baseline]), count, _NOT_SHOWN)
        return Difference(name, baseline, area, levels, own)
