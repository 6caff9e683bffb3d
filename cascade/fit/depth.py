"""Fit the depth of the small stage: a constant, one a query class, or one by predicted gain."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import numpy as np
from numpy.typing import NDArray

from cascade.errors import ConfigError
from cascade.fit.observed import Observed
from cascade.policy.depth import choose_depth
from cascade.policy.depth_rules import FixedDepth, GainAtDepth, GainDepth, GainSignal, GreedyDepth, HistoryNumbers
from cascade.policy.release import Limits
from cascade.signals.compute import Signals
from cascade.types import QueryClass

__all__ = [
    "Compared",
    "DepthFit",
    "class_difficulty",
    "fit_depth",
    "fit_fixed",
    "fit_gain",
    "fit_greedy",
    "tried_on",
]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.intp]

_FARTHEST_Z: Final = 5.0
_ALPHAS: Final = tuple(float(alpha) for alpha in np.logspace(0, 5, 11))
_LEAST_QUERIES: Final = 30
_RESAMPLES: Final = 2000
_PRICES: Final = tuple(float(price) for price in np.geomspace(1e-5, 0.02, 20))
_ROUNDING: Final = 1e-9


@dataclass(frozen=True, slots=True)
class Compared:
    """A kind of depth against a simpler one at equal mean cost, on queries that neither was fitted on.

    ``difference`` in mean quality, with the percentile interval of a paired bootstrap over queries;
    ``mean_depth`` is what both score, candidates a query.
    """

    kind: str
    against: str
    mean_depth: float
    difference: float
    low: float
    high: float

    @property
    def wins(self) -> bool:
        """Tell whether the interval lies above zero."""
        return self.low > 0.0


@dataclass(frozen=True, slots=True)
class DepthFit:
    """The depth to ship, the comparisons that chose it, and the historical difficulty that it reads, if any."""

    rule: FixedDepth | GreedyDepth | GainDepth
    compared: tuple[Compared, ...]
    history: HistoryNumbers | None = None


def fit_fixed(seen: Observed, price: float) -> int:
    """Return argmax over depths of the mean of quality - price x candidates scored, ties to the shallower."""
    return seen.depths[int(np.argmax((seen.quality - price * seen.cost).mean(axis=0)))]


def _scored(seen: Observed, price: float) -> int:
    """Return the best constant depth, or the shallowest that scores anything where that is none."""
    return fit_fixed(seen, price) or seen.depths[1]


def fit_greedy(seen: Observed, price: float, *, least_queries: int = _LEAST_QUERIES) -> GreedyDepth:
    """Return the best constant depth of each class that has ``least_queries``; others have that of all queries."""
    found: dict[QueryClass, int] = {}
    for query_class in QueryClass:
        of_class = np.flatnonzero([one is query_class for one in seen.classes])
        if len(of_class) >= least_queries:
            found[query_class] = fit_fixed(seen.take(of_class), price)
    return GreedyDepth(kind="greedy", default=_scored(seen, price), most=seen.depths[-1], classes=found)


def class_difficulty(seen: Observed, *, least_queries: int = _LEAST_QUERIES) -> dict[QueryClass, float]:
    """Return the mean quality lost at the greatest depth, 1 - quality, of each class with ``least_queries``.

    It is empty where fewer than two classes have as many: one number for all queries tells nothing.
    """
    of_class = {name: [place for place, one in enumerate(seen.classes) if one is name] for name in QueryClass}
    found = {
        name: _kept(1.0 - float(seen.quality[places, -1].mean()))
        for name, places in of_class.items()
        if len(places) >= least_queries
    }
    return found if len(found) > 1 else {}


def fit_gain(seen: Observed, price: float, *, alphas: Sequence[float] = _ALPHAS) -> GainDepth:
    """Fit one ridge regression a depth, of the quality gained over the shallowest on the signals.

    Signals are standardised over the queries that have them and clipped to five standard deviations; a
    missing one is zero and sets its own indicator, penalised alike; the intercept is free. One penalty
    for all depths is chosen of ``alphas`` by generalised cross-validation (Golub, Heath and Wahba 1979).
    Numbers are kept to seven digits, so that what was fitted is what a release says.
    """
    present = np.isfinite(seen.signals)
    counts = np.maximum(present.sum(axis=0), 1)
    filled = np.where(present, seen.signals, 0.0)
    means = filled.sum(axis=0) / counts
    apart = np.where(present, filled - means, 0.0)
    deviations = np.sqrt((apart**2).sum(axis=0) / counts)
    deviations = np.where(deviations > 0.0, deviations, 1.0)
    features = np.hstack([np.clip(apart / deviations, -_FARTHEST_Z, _FARTHEST_Z), ~present])
    gains = seen.quality - seen.quality[:, :1]
    weights, intercepts = _ridge(features, gains, alphas)
    p = len(seen.names)
    return GainDepth(
        kind="gain",
        default=_scored(seen, price),
        most=seen.depths[-1],
        price_per_candidate=price,
        signals=tuple(
            GainSignal(signal=name, mean=_kept(mean), sd=_kept(sd))
            for name, mean, sd in zip(seen.names, means, deviations, strict=True)
        ),
        depths=tuple(
            GainAtDepth(
                depth=depth,
                intercept=_kept(intercepts[at]),
                weights=tuple(map(_kept, weights[:p, at])),
                missing=tuple(map(_kept, weights[p:, at])),
            )
            for at, depth in enumerate(seen.depths)
        ),
    )


def _kept(value: float) -> float:
    return float(f"{value:.7g}")


def _ridge(features: FloatArray, targets: FloatArray, alphas: Sequence[float]) -> tuple[FloatArray, FloatArray]:
    """Return weights (p, D) and intercepts (D,) of least generalised cross-validation error."""
    centre, mean = features.mean(axis=0), targets.mean(axis=0)
    left, singular, right = np.linalg.svd(features - centre, full_matrices=False)
    rotated = left.T @ (targets - mean)
    count = len(features)

    def error(alpha: float) -> float:
        kept = singular**2 / (singular**2 + alpha)
        residual = (targets - mean) - left @ (kept[:, None] * rotated)
        freedom = max(count - 1.0 - float(kept.sum()), 1.0)
        return float((residual**2).sum()) / freedom**2

    alpha = min(alphas, key=error)
    weights = right.T @ ((singular / (singular**2 + alpha))[:, None] * rotated)
    return weights, mean - centre @ weights


def fit_depth(seen: Observed, price: float, *, folds: int = 5, seed: int = 0) -> DepthFit:
    """Fit all three kinds and return the most elaborate that beats the simpler ones at equal mean cost.

    Each is fitted on the other folds of queries and chooses for the fold left out, by the code that
    serves. Greedy must beat fixed depths, and gain whichever of fixed and greedy is kept; a win is an
    interval above zero. Gain also reads the historical difficulty of the query's class, where there are
    classes. Deterministic for one seed. Raises ConfigError for fewer queries than folds.
    """
    if len(seen.quality) < 2 * folds:
        raise ConfigError(f"depth is fitted from {2 * folds} queries on")
    draw = np.random.default_rng(seed)
    fold_of = draw.permutation(len(seen.quality)) % folds
    baseline = [_Outcome.of(seen, np.full(len(fold_of), at)) for at in range(len(seen.depths))]
    greedy = _left_out(seen, fold_of, partial(_greedy, price=price))
    compared = [_compare("greedy", "fixed", greedy, baseline, draw)]
    kept, against = _Fitted(FixedDepth(depth=fit_fixed(seen, price))), "fixed"
    if compared[0].wins:
        kept, against = _greedy(seen, price), "greedy"
        baseline += [_left_out(seen, fold_of, partial(_greedy, price=at)) for at in _PRICES]
    gain = _left_out(seen, fold_of, partial(_gain, price=price))
    compared.append(_compare("gain", against, gain, baseline, draw))
    if compared[1].wins:
        kept = _gain(seen, price)
    history = HistoryNumbers(classes=kept.difficulty) if kept.difficulty else None
    return DepthFit(kept.rule, tuple(compared), history)


def tried_on(fitted: Observed, tested: Observed, price: float, *, seed: int = 0) -> tuple[Compared, ...]:
    """Fit greedy and gain on some queries and compare each with the fixed depths on others, at equal mean depth."""
    draw = np.random.default_rng(seed)
    baseline = [_Outcome.of(tested, np.full(len(tested.quality), at)) for at in range(len(tested.depths))]
    kinds = (("greedy", _greedy(fitted, price)), ("gain", _gain(fitted, price)))
    return tuple(_compare(kind, "fixed", _served(one, tested), baseline, draw) for kind, one in kinds)


@dataclass(frozen=True, slots=True)
class _Fitted:
    """A rule, and the difficulty of classes that it was fitted with."""

    rule: FixedDepth | GreedyDepth | GainDepth
    difficulty: Mapping[QueryClass, float] = field(default_factory=dict)


def _greedy(seen: Observed, price: float) -> _Fitted:
    return _Fitted(fit_greedy(seen, price))


def _gain(seen: Observed, price: float) -> _Fitted:
    difficulty = class_difficulty(seen)
    return _Fitted(fit_gain(seen.with_history(difficulty) if difficulty else seen, price), difficulty)


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What each query had and how many candidates it scored under one rule, (Q,)."""

    quality: FloatArray
    depth: FloatArray

    @classmethod
    def of(cls, seen: Observed, at: IntArray) -> _Outcome:
        """Return what comes of the depths at positions ``at`` of the grid."""
        queries = np.arange(len(at))
        return cls(seen.quality[queries, at], seen.cost[queries, at])


def _served(fitted: _Fitted, seen: Observed) -> _Outcome:
    limits, most = Limits(max_candidates=seen.depths[-1]), seen.depths[-1]
    told = seen.with_history(fitted.difficulty)
    at = np.zeros(len(told.quality), dtype=np.intp)
    for query, values in enumerate(told.signals.tolist()):
        signals = Signals(dict(zip(told.names, values, strict=True)), told.classes[query])
        at[query] = told.depths.index(choose_depth(fitted.rule, limits, most, signals).depth)
    return _Outcome.of(told, at)


def _left_out(seen: Observed, fold_of: IntArray, fit: Callable[[Observed], _Fitted]) -> _Outcome:
    quality, depth = np.zeros(len(fold_of)), np.zeros(len(fold_of))
    for fold in range(int(fold_of.max()) + 1):
        left_out = np.flatnonzero(fold_of == fold)
        outcome = _served(fit(seen.take(np.flatnonzero(fold_of != fold))), seen.take(left_out))
        quality[left_out], depth[left_out] = outcome.quality, outcome.depth
    return _Outcome(quality, depth)


def _compare(
    kind: str, against: str, outcome: _Outcome, baseline: Sequence[_Outcome], draw: np.random.Generator
) -> Compared:
    """Compare with the best that the baseline reaches at the same mean depth or less, alone or by mixing two."""
    mean_depth = float(outcome.depth.mean())
    quality = max(_mixtures(baseline, mean_depth), key=lambda mixed: float(mixed.mean()))
    differences = outcome.quality - quality
    resampled = draw.integers(0, len(differences), (_RESAMPLES, len(differences)))
    low, high = np.percentile(differences[resampled].mean(axis=1), [2.5, 97.5])
    return Compared(kind, against, mean_depth, float(differences.mean()), float(low), float(high))


def _mixtures(baseline: Sequence[_Outcome], mean_depth: float) -> Iterator[FloatArray]:
    costs = [float(outcome.depth.mean()) for outcome in baseline]
    for cost, outcome in zip(costs, baseline, strict=True):
        if cost > mean_depth + _ROUNDING:
            continue
        yield outcome.quality
        for dearer_cost, dearer in zip(costs, baseline, strict=True):
            if dearer_cost > mean_depth:
                share = (mean_depth - cost) / (dearer_cost - cost)
                yield (1.0 - share) * outcome.quality + share * dearer.quality
