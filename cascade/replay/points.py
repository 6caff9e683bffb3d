"""The setting, or the two settings between which a coin chooses, at which a policy is reported."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from cascade.replay.coded import Values, decoded
from cascade.replay.columns import FloatArray, IntArray
from cascade.replay.sweep import Sweep

__all__ = ["Point", "at_pairs", "at_price", "at_setting", "points_beside"]


@dataclass(frozen=True, slots=True)
class Point:
    """A policy at fixed odds (S,) of its settings, which sum to 1. ``chosen`` says how they were chosen."""

    sweep: Sweep
    odds: FloatArray
    chosen: str

    def mean(self, values: Values) -> FloatArray:
        """Return the expected value of each query (Q,) out of values (S, Q), coded or not."""
        used = np.flatnonzero(self.odds)
        return np.asarray(self.odds[used] @ decoded(values, used))

    def alone(self, queries: IntArray | None = None) -> Point:
        """Return the same point of a sweep that has no other settings, on some of the queries or on all."""
        used = np.flatnonzero(self.odds)
        sweep = self.sweep.used(used)
        return Point(sweep if queries is None else sweep.take(queries), self.odds[used], self.chosen)

    def settings(self) -> list[tuple[float, float]]:
        """Return (setting, odds) of the settings that are used at all."""
        return [(self.sweep.settings[at], float(self.odds[at])) for at in np.flatnonzero(self.odds)]


def at_setting(sweep: Sweep, index: int, chosen: str) -> Point:
    """Return a policy at one of its settings."""
    odds = np.zeros(len(sweep.settings))
    odds[index] = 1.0
    return Point(sweep, odds, chosen)


def at_pairs(sweep: Sweep, pairs: float, chosen: str) -> Point:
    """Return a policy where it sends this many pairs a query on average, or as near as it comes."""
    means = sweep.pairs.mean(axis=1)
    order = np.argsort(means, kind="stable")
    after = int(np.searchsorted(means[order], pairs))
    if after in {0, order.size}:
        return at_setting(sweep, int(order[min(after, order.size - 1)]), chosen)
    low, high = order[after - 1], order[after]
    odds = np.zeros(order.size)
    odds[high] = (pairs - means[low]) / (means[high] - means[low])
    odds[low] = 1.0 - odds[high]
    return Point(sweep, odds, chosen)


def at_price(sweep: Sweep, price: float) -> Point:
    """Return a policy at the setting of the greatest mean utility on these queries, the cheapest of equals."""
    utility = (sweep.quality - price * sweep.pairs).mean(axis=1)
    best = utility.size - 1 - int(np.argmax(utility[::-1]))
    return at_setting(sweep, best, "greatest mean utility at the price, on these queries")


def points_beside(sweeps: Mapping[str, Sweep], reference: Point) -> dict[str, Point]:
    """Return every policy at its only setting, or where it costs what the reference does."""
    pairs = float(reference.mean(reference.sweep.pairs).mean())
    points = {}
    for name, sweep in sweeps.items():
        if name == reference.sweep.name:
            points[name] = reference
        elif len(sweep.settings) == 1:
            points[name] = at_setting(sweep, 0, "its only setting")
        else:
            points[name] = at_pairs(sweep, pairs, f"as many pairs as {reference.sweep.name}")
    return points
