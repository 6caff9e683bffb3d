"""A wager against "the mean loss is epsilon or more": wealth that grows large is evidence, whenever one looks.

Waudby-Smith and Ramdas, "Estimating means of bounded random variables by betting" (JRSS B 2024): with x = (1 + D)/2 and
m = (1 + epsilon)/2, wealth K_t = prod(1 - lambda_i (x_i - m)) is a non-negative supermartingale where E[D | past] >=
epsilon, if every bet lambda_i is chosen before x_i is seen. By Ville's inequality it then ever reaches 1/alpha with
probability alpha at most.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from cascade.errors import ConfigError
from cascade.statistics.sample import FloatArray, between

__all__ = ["NonInferiority", "log_wealth"]

_CAP: Final = 0.9
"""Share of the wealth that the worst outcome may cost."""


@dataclass(frozen=True, slots=True)
class NonInferiority:
    """The wager after ``count`` losses in [-1, 1]. Without losses it is the start.

    ``total`` is the sum of x, ``squares`` that of (x_i - mean_i)^2, each about the mean as it was then.
    To gather evidence of harm, E[D] > epsilon, wager on -D with -epsilon. Plain numbers: a state can be
    stored and taken up again.
    """

    epsilon: float
    alpha: float
    count: int = 0
    total: float = 0.0
    squares: float = 0.0
    log_wealth: float = 0.0
    log_peak: float = 0.0

    def __post_init__(self) -> None:
        """Refuse an epsilon outside (-1, 1) and an alpha outside (0, 1) with ConfigError."""
        between("epsilon", self.epsilon, -1.0, 1.0)
        between("alpha", self.alpha, 0.0, 1.0)

    def update(self, loss: float) -> NonInferiority:
        """Return the wager after one loss more. Raises ConfigError for one that is not in [-1, 1]."""
        _check(loss)
        x, middle, seen = (1.0 + loss) / 2.0, (1.0 + self.epsilon) / 2.0, self.count + 1
        variance = (0.25 + self.squares) / seen
        wanted = math.sqrt(-2.0 * math.log(self.alpha) / (variance * seen * math.log1p(seen)))
        bet = min(wanted, _CAP / (1.0 - middle))
        wealth = self.log_wealth + math.log1p(-bet * (x - middle))
        total = self.total + x
        return replace(
            self,
            count=seen,
            total=total,
            squares=self.squares + (x - (0.5 + total) / (seen + 1)) ** 2,
            log_wealth=wealth,
            log_peak=max(self.log_peak, wealth),
        )

    @property
    def p(self) -> float:
        """Return a p-value that holds at every count: 1 over the greatest wealth so far."""
        return math.exp(-self.log_peak)

    @property
    def shown(self) -> bool:
        """Tell whether a mean loss below epsilon is shown at level alpha; once shown, it stays so."""
        return self.log_peak >= -math.log(self.alpha)


def log_wealth(losses: npt.ArrayLike, epsilon: float, alpha: float) -> FloatArray:
    """Return the logarithm of the wealth after each loss of streams (..., T), same shape.

    The same wager as ``NonInferiority``. Raises ConfigError for a loss that is not in [-1, 1].
    """
    start = NonInferiority(epsilon, alpha)
    found = np.asarray(losses, dtype=np.float64)
    _check(found)
    x, middle = (1.0 + found) / 2.0, (1.0 + start.epsilon) / 2.0
    seen = np.arange(1, x.shape[-1] + 1)
    means = (0.5 + x.cumsum(axis=-1)) / (seen + 1)
    squares = ((x - means) ** 2).cumsum(axis=-1)
    before = np.concatenate([np.zeros((*squares.shape[:-1], 1)), squares[..., :-1]], axis=-1)
    wanted = np.sqrt(-2.0 * math.log(start.alpha) / ((0.25 + before) * np.log1p(seen)))
    bets = np.minimum(wanted, _CAP / (1.0 - middle))
    return np.asarray(np.log1p(-bets * (x - middle)).cumsum(axis=-1))


def _check(losses: float | FloatArray) -> None:
    if not np.all(np.abs(losses) <= 1.0):
        raise ConfigError("losses: one is not a number in [-1, 1]")
