"""What `cascade certify` is asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np

from cascade.calibration.certificate import Contract
from cascade.fit.certify.replays import Family
from cascade.fit.certify.served import Mix
from cascade.fit.certify.splits import Shares
from cascade.metrics import Gain
from cascade.replay.columns import FloatArray
from cascade.replay.queries import Roles
from cascade.statistics.betting import Bets
from cascade.types import ScoreSpace

__all__ = ["FITTING", "NOT_FITTING", "Asked"]

FITTING: Final = Shares(0.6, 0.0, 0.4)
"""Where a calibration is fitted: its queries also choose the path, each replayed by models that have not seen it."""
NOT_FITTING: Final = Shares(0.0, 0.3, 0.7)


@dataclass(frozen=True, slots=True)
class Asked:
    """The contract, the columns, the families of policies and how queries are parted.

    ``families`` are those that a path is made of; ``shares`` None means the default for whether a calibration has
    to be fitted. ``mix`` is what is served beside the policy, None where nothing is.
    """

    roles: Roles
    epsilon: float
    delta: float = 0.1
    k: int = 10
    gain: Gain = Gain.LINEAR
    kind: Literal["gold", "silver"] = "gold"
    sided: Literal["one", "two"] = "two"
    families: tuple[Family, ...] = (Family.CALIBRATED,)
    shares: Shares | None = None
    bets: Bets = Bets.STAR
    seed: int = 0
    mix: Mix | None = None
    fallback_answer: Literal["first-stage", "small"] = "first-stage"
    small_space: ScoreSpace | None = None
    large_space: ScoreSpace | None = None
    where: tuple[str, ...] = ()

    def contract(self) -> Contract:
        """Return what is promised."""
        gain = "1/rank of the large order" if self.kind == "silver" else self.gain.value
        return Contract(kind=self.kind, sided=self.sided, k=self.k, gain=gain, epsilon=self.epsilon, delta=self.delta)

    def losses(self, large: FloatArray, served: FloatArray) -> FloatArray:
        """Return what queries (..., n) lose: Q_large - Q_policy, and where one side counts no less than 0."""
        lost = large - served
        return np.maximum(lost, 0.0) if self.sided == "one" else lost

    def told(self) -> dict[str, Any]:
        """Return all that decides the outcome beside the data, as plain data."""
        return {
            "contract": self.contract().model_dump(),
            "roles": [list(self.roles.first_stage), self.roles.small, self.roles.large, self.roles.depth],
            "families": [family.value for family in self.families],
            "shares": None if self.shares is None else [self.shares.fit, self.shares.choose, self.shares.certify],
            "bets": self.bets.value,
            "seed": self.seed,
            "mix": None
            if self.mix is None
            else [dict(self.mix.levels), self.mix.fallback_rate, self.mix.fallbacks, self.fallback_answer],
            "spaces": [self.small_space, self.large_space],
        }
