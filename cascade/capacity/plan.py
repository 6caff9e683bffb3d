"""A plan: what each level costs each pool of replicas, how many it needs, and what a number of them carries."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from cascade.capacity.demand import Demand
from cascade.capacity.headroom import Headroom, Situation
from cascade.capacity.pair_work import PairWork
from cascade.capacity.traffic import Arrivals
from cascade.types import StageName

__all__ = ["SAFE_MODE", "LevelPlan", "Plan", "Pool", "StageLoad"]

SAFE_MODE: Final = "safe mode"
"""Stands among the levels for the time in which the calibration does not hold. It is no level to step to."""
_ROUNDING: Final = 1e-9


class Pool(StrEnum):
    """Replicas that are counted together: a stage's servers, or the sidecars with the stages inside them."""

    SMALL = "small"
    LARGE = "large"
    SIDECAR = "sidecar"


@dataclass(frozen=True, slots=True)
class StageLoad:
    """What a query costs a stage.

    ``pool`` is None for a hosted stage, whose replicas are the provider's, and for one that orders lists at a pace that nothing
    tells, and ``seconds`` then too. Otherwise it is how long one replica at full throughput is busy with a query.
    """

    stage: StageName
    pool: Pool | None
    demand: Demand
    work: PairWork
    seconds: float | None

    @property
    def pairs(self) -> float:
        """Return the mean pairs of a query, or the mean lists of a stage that orders them."""
        return self.demand.pairs

    @property
    def tokens(self) -> float:
        """Return the mean tokens that are read for a query."""
        return self.pairs * self.work.tokens

    @property
    def computed_tokens(self) -> float:
        """Return the mean tokens that are computed for a query, padding included."""
        return self.pairs * self.work.computed


@dataclass(frozen=True, slots=True)
class LevelPlan:
    """What a level needs: ``seconds`` that a query keeps a replica of each pool busy, and the fewest ``replicas``."""

    name: str
    stages: tuple[StageLoad, ...]
    seconds: Mapping[Pool, float]
    replicas: Mapping[Pool, int]

    def most_qps(self, have: Mapping[Pool, int], headroom: Headroom, situation: Situation) -> tuple[float, Pool | None]:
        """Return the greatest rate that replicas carry in a situation, and the pool that passes its limit first.

        Infinity and None where no replica is needed.
        """
        rates = [
            (headroom.carried(have[pool], situation) / seconds, pool)
            for pool, seconds in self.seconds.items()
            if seconds > 0
        ]
        return min(rates, key=lambda rate: rate[0], default=(math.inf, None))

    def safe_qps(self, have: Mapping[Pool, int], headroom: Headroom) -> tuple[float, Pool | None]:
        """Return the greatest rate that replicas carry in every situation that is planned for, and the first to fail."""
        return min((self.most_qps(have, headroom, each) for each in headroom.situations), key=lambda rate: rate[0])


@dataclass(frozen=True, slots=True)
class Plan:
    """What all levels need, and what ``have`` carries: the replicas named, else those that the first level needs."""

    arrivals: Arrivals
    headroom: Headroom
    levels: tuple[LevelPlan, ...]
    have: Mapping[Pool, int]
    have_given: bool
    notes: tuple[str, ...]

    @property
    def steps(self) -> tuple[LevelPlan, ...]:
        """Return the levels that load may step through, the release as it stands first."""
        return tuple(level for level in self.levels if level.name != SAFE_MODE)

    def level_at(self, qps: float, situation: Situation | None = None) -> str | None:
        """Return the first level at which ``have`` carries a rate, None where none does.

        Without a situation it is carried in each that is planned for.
        """
        for level in self.steps:
            found = (
                level.safe_qps(self.have, self.headroom)
                if situation is None
                else level.most_qps(self.have, self.headroom, situation)
            )
            if found[0] * (1 + _ROUNDING) >= qps:
                return level.name
        return None

    def time_at(self) -> dict[str | None, float]:
        """Return the share of time at which each level is the first that ``have`` carries, bursts included.

        Empty where the arrivals have no windows.
        """
        total = math.fsum(window.seconds for window in self.arrivals.windows)
        shares: dict[str | None, float] = {}
        for window in self.arrivals.windows:
            name = self.level_at(window.qps * self.arrivals.burst_factor)
            shares[name] = shares.get(name, 0.0) + window.seconds / total
        return shares
