"""Estimates from weighted records, with intervals, and the guards that they must pass."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from cascade.replay.columns import FloatArray, IntArray
from cascade.replay.intervals import Figure, figure
from cascade.statistics.off_policy import clipped, doubly_robust, effective_sample_size, ips, mean_of, snips

__all__ = [
    "LARGEST_WEIGHT",
    "LEAST_PROPENSITY",
    "LEAST_SAMPLE",
    "MOST_CLIPPED",
    "MOST_STANDARD_ERRORS",
    "Bootstrap",
    "Estimated",
    "Guard",
    "Predict",
    "Weighed",
    "estimated",
    "numbered",
]

LEAST_PROPENSITY: Final = 0.02
LARGEST_WEIGHT: Final = 20.0
MOST_CLIPPED: Final = 0.05
"""Share of the weight that clipping may take: every estimate is off by what it earned, and no interval tells that."""
LEAST_SAMPLE: Final = 200.0
MOST_STANDARD_ERRORS: Final = 3.0
_AT_ONCE: Final = 2**21
"""Numbers that a part of the bootstrap holds at a time."""
_NO_WEIGHT: Final = "no record has a weight"

Predict = Callable[[FloatArray, FloatArray, IntArray], FloatArray]
"""Predict values (n,) of the target's action, from values and weights (n,) and the numbers of the queries (n,)."""


@dataclass(frozen=True, slots=True)
class Guard:
    """Something that must hold for estimates to mean anything, and what was seen of it, in words."""

    name: str
    holds: bool
    seen: str
    wanted: str

    @property
    def refusal(self) -> str:
        """Return why the guard refuses."""
        return f"{self.name}: {self.seen}; wanted: {self.wanted}"


@dataclass(frozen=True, slots=True)
class Bootstrap:
    """Resamples of queries, each with all its records: those of one query are alike. ``queries`` (n,) are numbers."""

    queries: IntArray
    resamples: int
    seed: int

    @property
    def count(self) -> int:
        """Return how many queries there are."""
        return int(self.queries.max(initial=-1)) + 1

    def draws(self, *estimators: Callable[[FloatArray | None], FloatArray]) -> list[FloatArray]:
        """Return each estimator (1 + B,) of the sample and of B resamples, all of the same ones."""
        found = [[np.atleast_1d(estimator(None))] for estimator in estimators]
        for counts in self._counts():
            for each, estimator in zip(found, estimators, strict=True):
                each.append(estimator(counts))
        return [np.concatenate(each) for each in found]

    def _counts(self) -> Iterator[FloatArray]:
        generator = np.random.default_rng(self.seed)
        odds = np.full(self.count, 1.0 / self.count)
        step = max(1, _AT_ONCE // self.queries.size)
        for begun in range(0, self.resamples, step):
            drawn = generator.multinomial(self.count, odds, size=min(step, self.resamples - begun))
            yield drawn.astype(np.float64)[:, self.queries]


@dataclass(frozen=True, slots=True)
class Weighed:
    """Records that a target is estimated from; arrays (n,).

    ``values`` are what is estimated the mean of, ``propensities`` those of the logged actions, and ``covered``
    tells where the target takes them. ``queries`` numbers the queries, from 0 without a gap.
    """

    values: FloatArray
    propensities: FloatArray
    covered: FloatArray
    queries: IntArray

    @property
    def weights(self) -> FloatArray:
        """Return the weights pi(a|x) / p(a|x), not clipped."""
        return self.covered / self.propensities


@dataclass(frozen=True, slots=True)
class Estimated:
    """What the weighed records say. ``figures`` are there whatever the guards, which tell whether to believe them."""

    records: int
    queries: int
    least_propensity: float
    mean_weight: float
    standard_error: float
    effective_sample_size: float
    clipped_mass: float
    guards: tuple[Guard, ...]
    figures: dict[str, Figure]

    @property
    def refusals(self) -> list[str]:
        """Return why the figures are not to be believed, empty where they are."""
        return [guard.refusal for guard in self.guards if not guard.holds]


def numbered(names: Sequence[str]) -> IntArray:
    """Return the number (n,) of each name, from 0 in the order of the names."""
    return np.asarray(np.unique(np.array(names, dtype=np.str_), return_inverse=True)[1], dtype=np.int64)


def estimated(weighed: Weighed, resamples: int, seed: int, predict: Predict | None = None) -> Estimated:
    """Estimate the target's mean value, and by how much it is above that of what was logged.

    Weights are clipped at 20 for the values; the guards see them as they are. With ``predict`` there are the
    doubly robust estimates too. At least one record is needed.
    """
    bootstrap = Bootstrap(weighed.queries, resamples, seed)
    values, whole = weighed.values, weighed.weights
    weights, clipped_mass = clipped(whole, LARGEST_WEIGHT)
    used = np.where(weights > 0.0, values, 0.0)
    estimators: dict[str, Callable[[FloatArray | None], FloatArray]] = {
        "weight": lambda counts: mean_of(whole, counts),
        "logged": lambda counts: mean_of(values, counts),
        "ips": lambda counts: ips(used, weights, counts),
        "snips": lambda counts: snips(used, weights, counts),
    }
    if predict is not None:
        predicted = predict(values, weights, weighed.queries)
        estimators["dr"] = lambda counts: doubly_robust(used, weights, predicted, counts)
    draws = dict(zip(estimators, bootstrap.draws(*estimators.values()), strict=True))
    over = draws.pop("weight")
    best = draws["dr"] if predict is not None else draws["snips"]
    figures = {name: figure(draw, bootstrap.count, _NO_WEIGHT) for name, draw in draws.items()}
    figures["difference"] = figure(best - draws["logged"], bootstrap.count, _NO_WEIGHT)
    covered = weighed.propensities[weighed.covered > 0.0]
    least = float(covered.min()) if covered.size else math.nan
    error = float(over[1:].std())
    size = float(effective_sample_size(np.bincount(weighed.queries, whole).astype(np.float64)))
    return Estimated(
        records=values.size,
        queries=bootstrap.count,
        least_propensity=least,
        mean_weight=float(over[0]),
        standard_error=error,
        effective_sample_size=size,
        clipped_mass=clipped_mass,
        guards=_guards(least, clipped_mass, float(over[0]), error, size),
        figures=figures,
    )


def _guards(least: float, clipped_mass: float, mean: float, error: float, size: float) -> tuple[Guard, ...]:
    away = MOST_STANDARD_ERRORS * error + 1e-9
    return (
        Guard(
            "propensity",
            bool(least >= LEAST_PROPENSITY),  # NaN, where nothing is covered, is below too
            f"the least of a covered action is {least:.4g}",
            f"at least {LEAST_PROPENSITY:g}",
        ),
        Guard(
            "clipped mass",
            clipped_mass <= MOST_CLIPPED,
            f"{clipped_mass:.4g} of the weight lies above {LARGEST_WEIGHT:g} a record",
            f"at most {MOST_CLIPPED:g}",
        ),
        Guard(
            "mean weight",
            abs(mean - 1.0) <= away,
            f"{mean:.4g}, with a standard error of {error:.4g}",
            f"1 within {MOST_STANDARD_ERRORS:g} standard errors",
        ),
        Guard(
            "effective sample size",
            size >= LEAST_SAMPLE,
            f"{size:.4g} queries",
            f"at least {LEAST_SAMPLE:g}",
        ),
    )
