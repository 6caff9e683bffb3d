"""What load levels and fallbacks lose, and what is then left of epsilon and delta for the policy itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from cascade.calibration.certificate import AsServed, Attempts, Fallbacks, LevelServed
from cascade.errors import ConfigError
from cascade.fit.certify.asked import Asked
from cascade.fit.certify.served import as_served, left_for_normal
from cascade.fit.certify.splits import betting_order
from cascade.replay import baselines
from cascade.replay.columns import FloatArray
from cascade.replay.policy import Policy, play
from cascade.replay.queries import ReplayedQuery
from cascade.replay.sweep import Metric
from cascade.statistics.betting import Bets, betting_upper_bound

__all__ = ["Budget", "budget_of", "check_levels", "quality_of"]

_POLICY: Final = 0.8
"""The share of delta that the policy itself may spend where other bounds stand beside its own."""
_MOST: Final = 0.5
"""The greatest epsilon for the policy itself: levels that gain leave no room for one that harms without bound."""
FIRST_STAGE: Final = "first-stage"
SMALL: Final = "small"


@dataclass(frozen=True, slots=True)
class Budget:
    """The epsilon that the policy itself must keep and the delta that it may spend, and the bounds beside it."""

    asked: Asked
    epsilon: float
    delta: float
    levels: Mapping[str, float] = field(default_factory=dict)
    fallback_rate: float = 0.0
    fallback: float = 0.0

    def told(self, bound: float) -> AsServed | None:
        """Return what a certificate tells of what is served, where that is more than the policy."""
        mix = self.asked.mix
        if mix is None:
            return None
        bounds = {**self.levels, mix.normal: bound}
        fallbacks = Fallbacks(
            rate=self.fallback_rate, counted=mix.fallbacks, answer=self.asked.fallback_answer, bound=self.fallback
        )
        return AsServed(
            levels={
                name: LevelServed(share=share, bound=bounds[name]) for name, share in mix.levels.items() if share > 0.0
            },
            fallbacks=fallbacks if mix.falls_back else None,
            normal_epsilon=self.epsilon,
            bound=as_served(bounds, mix.levels, self.fallback_rate, self.fallback),
        )


def check_levels(asked: Asked, levels: Mapping[str, Policy]) -> None:
    """Raise ConfigError for a level that nobody knows, before an attempt is counted."""
    mix = asked.mix
    unknown = [] if mix is None else [name for name in mix.others if name not in {*levels, FIRST_STAGE, SMALL}]
    if mix is not None and unknown:
        there = ", ".join([mix.normal, *levels, SMALL, FIRST_STAGE])
        raise ConfigError(f"--levels-served: no level {unknown[0]}; there are {there}")


def budget_of(
    asked: Asked, attempt: Attempts, queries: Sequence[ReplayedQuery], large: FloatArray, levels: Mapping[str, Policy]
) -> Budget:
    """Bound what levels and fallbacks lose on the queries that certify, each at its share of delta.

    ``large`` is the quality of always-large (n,).
    """
    mix = asked.mix
    if mix is None or not mix.bounds:
        return Budget(asked, asked.epsilon, attempt.delta)
    delta = (1.0 - _POLICY) * attempt.delta / mix.bounds
    order = betting_order([query.id for query in queries], asked.seed)

    def bound(name: str) -> float:
        losses = asked.losses(large, quality_of(name, queries, asked.k, levels))[order]
        return betting_upper_bound(losses, 0.0, delta, Bets.WSR)

    bounds = {name: bound(name) for name in mix.others}
    rate = mix.rate(delta)
    fallback = bound(asked.fallback_answer) if mix.falls_back else 0.0
    left = min(_MOST, left_for_normal(asked.epsilon, bounds, mix, rate, fallback))
    return Budget(asked, left, _POLICY * attempt.delta, bounds, rate, fallback)


def quality_of(name: str, queries: Sequence[ReplayedQuery], k: int, levels: Mapping[str, Policy]) -> FloatArray:
    """Return what a level, or the first-stage or small order, serves (n,)."""
    if name in levels:
        return np.asarray(play(queries, levels[name], k, Metric.NDCG, prices=()).sweep.quality[0])
    if name == FIRST_STAGE:
        return np.asarray(baselines.first_stage(queries, k, Metric.NDCG).quality[0])
    return np.asarray(baselines.small(queries, k, Metric.NDCG).quality[0])
