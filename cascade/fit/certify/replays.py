"""What policies of a family do to queries at each of their thresholds, each query by models that have not seen it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, Self, assert_never

import numpy as np

from cascade.calibration.calibrated import Calibration
from cascade.policy.escalation_rules import (
    CalibratedEscalation,
    Escalation,
    FusedEscalation,
    NoEscalation,
    StaticEscalation,
)
from cascade.replay import baselines
from cascade.replay.columns import FloatArray
from cascade.replay.policy import Policy, play
from cascade.replay.queries import ReplayedQuery
from cascade.replay.sweep import Metric, Sweep

__all__ = ["PRICES", "Family", "Replay", "by_fold", "fused_replay", "policy_replay", "static_replay"]

PRICES: Final = (1e-4, 2e-4, 3e-4, *np.geomspace(5e-4, 0.1, 33).tolist())
"""Prices a pair that a path is made of."""
_SIZES: Final = (*range(1, 21), 22, 25, 28, 32, 36, 40, 45, 50, 60, 75, 100, 150)
"""Sizes of the top m that are tried of a release's rule, whose depth may differ by query."""


class Family(StrEnum):
    """Which policies a path is made of: one rule at every threshold."""

    STATIC = "static"
    FUSED = "static-fused"
    CALIBRATED = "calibrated"
    RELEASE = "release"


@dataclass(frozen=True, slots=True)
class Replay:
    """S policies on Q queries: what each serves and sends; arrays (S, Q)."""

    family: tuple[Family, ...]
    settings: tuple[float, ...]
    rules: tuple[Escalation, ...]
    quality: FloatArray
    pairs: FloatArray

    @classmethod
    def above(cls, replays: Sequence[Self]) -> Self:
        """Return all policies of several replays of the same queries."""
        return cls(
            tuple(family for one in replays for family in one.family),
            tuple(setting for one in replays for setting in one.settings),
            tuple(rule for one in replays for rule in one.rules),
            np.concatenate([one.quality for one in replays]),
            np.concatenate([one.pairs for one in replays]),
        )

    def beside(self, other: Self) -> Self:
        """Return the same policies on the queries of both."""
        return replace(
            self,
            rules=other.rules,
            quality=np.concatenate([self.quality, other.quality], axis=1),
            pairs=np.concatenate([self.pairs, other.pairs], axis=1),
        )

    def take(self, queries: Sequence[int]) -> Self:
        """Return the same policies on some of the queries."""
        return replace(self, quality=self.quality[:, queries], pairs=self.pairs[:, queries])


def by_fold(
    queries: Sequence[ReplayedQuery],
    fold: Sequence[int],
    calibration_of: Callable[[int], Calibration],
    replayed_by: Callable[[Sequence[ReplayedQuery], Calibration], Replay],
) -> Replay:
    """Replay each query by the calibration of its fold, which was fitted without it."""
    places = [[place for place, at in enumerate(fold) if at == number] for number in sorted(set(fold))]
    parts = [
        replayed_by([queries[place] for place in mine], calibration_of(number))
        for number, mine in zip(sorted(set(fold)), places, strict=True)
    ]
    whole = parts[0]
    for part in parts[1:]:
        whole = whole.beside(part)
    return whole.take(np.argsort(np.concatenate(places)).tolist())


def static_replay(queries: Sequence[ReplayedQuery], k: int, most: int) -> Replay:
    """Send the top m of the small order, for every m up to ``most``."""
    sweep = baselines.static(queries, k, Metric.NDCG, baselines.small_ranks(queries), most=most)
    rules = [StaticEscalation(kind="static", top_m=int(size)) for size in sweep.settings]
    return _replay(Family.STATIC, sweep, rules)


def fused_replay(queries: Sequence[ReplayedQuery], calibration: Calibration, k: int, most: int, digest: str) -> Replay:
    """Send the top m of the calibrated order, for every m up to ``most``; rules name the calibration of ``digest``."""
    ranks = baselines.fused_ranks(queries, calibration, k)
    sweep = baselines.static(queries, k, Metric.NDCG, ranks, "static-fused", most=most)
    cutoff = k if k in calibration.artefact.cutoffs else calibration.k
    rules = [
        FusedEscalation.model_validate({"kind": "static-fused", "calibration": digest, "top_m": int(size), "k": cutoff})
        for size in sweep.settings
    ]
    return _replay(Family.FUSED, sweep, rules)


def policy_replay(
    queries: Sequence[ReplayedQuery], policy: Policy, k: int, *, alone: bool = False, family: Family = Family.RELEASE
) -> Replay:
    """Replay a policy's rule at every threshold, or ``alone`` at its own. Raises ConfigError as `play` does."""
    rule = policy.escalation
    if isinstance(rule, CalibratedEscalation):
        sweep = play(queries, policy, k, Metric.NDCG, prices=() if alone else PRICES).sweep
        prices = [price for price in sweep.settings if alone or price in PRICES]
        chosen = [sweep.settings.index(price) for price in prices]
        rules = [rule.model_copy(update={"price_per_pair": price}) for price in prices]
        return Replay((family,) * len(rules), tuple(prices), tuple(rules), sweep.quality[chosen], sweep.pairs[chosen])
    rules_of = [rule] if alone else _sized(rule, max(query.pairs for query in queries))
    sweeps = [play(queries, replace(policy, escalation=one), k, Metric.NDCG).sweep for one in rules_of]
    return Replay(
        (family,) * len(sweeps),
        tuple(map(_size, rules_of)),
        tuple(rules_of),
        np.concatenate([sweep.quality for sweep in sweeps]),
        np.concatenate([sweep.pairs for sweep in sweeps]),
    )


def _sized(rule: Escalation, most: int) -> list[Escalation]:
    match rule:
        case StaticEscalation() | FusedEscalation():
            sizes = sorted({*(size for size in _SIZES if size < most), rule.top_m}, reverse=True)
            return [rule.model_copy(update={"top_m": size}) for size in sizes]
        case NoEscalation() | CalibratedEscalation():
            return [rule]
        case _:
            assert_never(rule)


def _size(rule: Escalation) -> float:
    return float(rule.top_m) if isinstance(rule, StaticEscalation | FusedEscalation) else 0.0


def _replay(family: Family, sweep: Sweep, rules: Sequence[Escalation]) -> Replay:
    return Replay((family,) * len(rules), sweep.settings, tuple(rules), sweep.quality, sweep.pairs)
