"""Everything a report says of some queries, computed from sweeps on one set of resamples."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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

    ``price`` is what a pair at the large stage costs, in units of the metric of the sweeps. ``best`` is the
    utility (Q,) of the best action, where more are known than the sweeps have.
    """

    sweeps: Mapping[str, Sweep]
    points: Mapping[str, Point]
    price: float
    best: FloatArray | None = None

    def take(self, queries: IntArray) -> Contest:
        """Return the same policies at the same settings on some of the queries.

        Sweeps are cut when they are read, one at a time, so that no second copy of all is held.
        """
        points = {name: point.alone(queries) for name, point in self.points.items()}
        return Contest(
            _Cut(self.sweeps, queries), points, self.price, None if self.best is None else self.best[queries]
        )


class _Cut(Mapping[str, Sweep]):
    """Sweeps on some of the queries."""

    def __init__(self, sweeps: Mapping[str, Sweep], queries: IntArray) -> None:
        self._sweeps, self._queries = sweeps, queries

    def __getitem__(self, name: str) -> Sweep:
        return self._sweeps[name].take(self._queries)

    def __iter__(self) -> Iterator[str]:
        return iter(self._sweeps)

    def __len__(self) -> int:
        return len(self._sweeps)


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
    """What is known of some queries. Curves are points (share of pairs, value), cheapest first, each of a setting."""

    queries: int
    gap: Figure
    shown: bool
    policies: Mapping[str, Mapping[str, Figure]]
    curves: Mapping[str, list[tuple[float, float]] | None]
    absolute_curves: Mapping[str, list[tuple[float, float]]]
    curve_settings: Mapping[str, tuple[float | None, ...]]
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
    best = contest.best
    if best is None:
        best = best_utility(sweeps["first-stage"], sweeps["static"], contest.price)
    at_points = {name: _at_point(point, drawn, best, contest.price) for name, point in contest.points.items()}
    comparing = _Comparing(count, curves, areas, costs, ends.pairs, at_points)
    return Measured(
        queries=count,
        gap=gap,
        shown=shown,
        policies={name: _figures(draws, ends.pairs, count) for name, draws in at_points.items()},
        curves={name: _points(curve.share[0], curve.recovered[0]) if shown else None for name, curve in curves.items()},
        absolute_curves={name: _points(curve.share[0], curve.quality[0]) for name, curve in curves.items()},
        curve_settings={name: curve.settings for name, curve in curves.items()},
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


def _at_point(point: Point, drawn: Resamples, best: FloatArray, price: float) -> dict[str, FloatArray]:
    """Return each mean over queries that there is of one policy at its setting, in each resample (1 + B,)."""
    alone = point.alone()
    sweep = alone.sweep
    each = {
        **{metric.value: values for metric, values in sweep.metrics.items()},
        "quality": sweep.quality,
        "pairs": sweep.pairs,
        **({} if sweep.tokens is None else {"tokens": sweep.tokens}),
        "regret": regrets(sweep, best, price),
        "engaged": sweep.engaged,
        "judged": sweep.judged,
    }
    means = drawn.means(np.stack([alone.mean(values) for values in each.values()]))
    return dict(zip(each, means.T, strict=True))


def _figures(draws: Mapping[str, FloatArray], large_pairs: FloatArray, queries: int) -> dict[str, Figure]:
    """Return the figures of one policy at its setting. A count is a query's mean."""

    def told(name: str) -> Figure:
        return figure(draws[name], queries, "not counted for every pair")

    return {
        **{metric.value: told(metric.value) if metric in draws else undefined(_SILVER) for metric in Metric},
        "large_pairs": figure(draws["pairs"], queries, ""),
        "large_share": figure(draws["pairs"] / large_pairs, queries, ""),
        "large_tokens": told("tokens") if "tokens" in draws else undefined(_NO_TOKENS),
        "regret": told("regret"),
        "engaged": told("engaged"),
        "judged": told("judged"),
    }


@dataclass(frozen=True, slots=True)
class _Comparing:
    """What differences between policies need, in each resample. ``at_points`` is of :func:`_at_point`."""

    queries: int
    curves: Mapping[str, Curve]
    areas: Mapping[str, FloatArray]
    costs: Mapping[str, Mapping[str, FloatArray]]
    large_pairs: FloatArray
    at_points: Mapping[str, Mapping[str, FloatArray]]

    def difference(self, name: str, baseline: str) -> Difference:
        count, ours_at = self.queries, self.at_points[name]
        theirs = quality_at_cost(self.curves[baseline], ours_at["pairs"] / self.large_pairs)
        own = figure(ours_at["quality"] - theirs, count, "")
        if name not in self.areas:
            absent = undefined(_NOT_SHOWN if name in self.curves else _ONE_SETTING)
            return Difference(name, baseline, absent, {f"{level:.2f}": absent for level in LEVELS}, own)
        ours, other = self.costs[name], self.costs[baseline]
        levels = {level: figure(minus(ours[level], other[level]), count, _ONE_ONLY) for level in ours}
        area = figure(minus(self.areas[name], self.areas[baseline]), count, _NOT_SHOWN)
        return Difference(name, baseline, area, levels, own)
