"""Betting bounds on a mean loss: valid at any number of queries, whatever the losses are distributed like.

A gambler who believes that the mean is below epsilon bets against each loss in turn: wealth is the product of
1 - lambda_t (D_t - epsilon). While the mean is at least epsilon and each lambda_t is chosen before D_t is
seen, wealth is a non-negative supermartingale that begins at 1, so that it ever reaches 1/delta with a probability
of at most delta (Ville). How to bet decides the power only, never the validity.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, assert_never

import numpy as np
import numpy.typing as npt

from cascade.errors import ConfigError
from cascade.statistics.sample import between

__all__ = ["UNINFORMED", "Bets", "Prior", "betting_p_value", "betting_upper_bound", "expected_growth"]

FloatArray = npt.NDArray[np.float64]

_ROUNDING: Final = 1e-9
_TRIED: Final = 24
_STEPS: Final = 40
"""Halvings of the interval in which an upper bound lies."""


class Bets(StrEnum):
    """How much is bet on the next loss.

    ``wsr``: sqrt(2 ln(1/delta) / (n v)), v the variance so far (Waudby-Smith and Ramdas, 2024, as in Bates et
    al., 2021). ``star``: what is still needed over what is still to come, sqrt(2 (ln(1/delta) - ln K) / ((n - t + 1) v))
    (Voracek and Orabona, 2025, without the randomised last bet).
    """

    WSR = "wsr"
    STAR = "star"


@dataclass(frozen=True, slots=True)
class Prior:
    """What bets believe of the losses before the first is seen, as if from ``weight`` losses.

    Any prior keeps the bounds valid that does not look at the losses themselves: one from other queries
    (transfer-informed betting) starts the bets near the size that they will come to. For many streams
    of losses ``mean`` and ``variance`` may have one value a stream (...,).
    """

    mean: float | FloatArray = 0.0
    variance: float | FloatArray = 1.0
    weight: float = 1.0


UNINFORMED: Final = Prior()
_REACH: Final = {Bets.WSR: 0.9, Bets.STAR: 0.99}
"""The greatest share of the wealth that a loss of the greatest size may take."""


def betting_p_value(
    losses: npt.ArrayLike,
    epsilon: float,
    delta: float,
    bets: Bets = Bets.WSR,
    prior: Prior = UNINFORMED,
    highest: float = 1.0,
) -> FloatArray:
    """Return p (...,) of H0: E[D] >= epsilon, for losses (..., n) of at most ``highest`` in an order fixed beforehand.

    Below ``delta``, which the bets aim at, it is valid for any distribution; 1 where n is 0. Raises
    ConfigError for losses that are not finite or too great, and for bounds out of range.
    """
    checked = _checked(losses, epsilon, delta, highest)
    wealth = np.zeros(checked.shape[:-1])
    most = np.zeros(checked.shape[:-1])
    placed = _placed(checked, epsilon, delta, bets, prior, highest)
    for step, bet in enumerate(placed):
        wealth += np.log1p(-bet * (checked[..., step] - epsilon))
        most = np.maximum(most, wealth)
    return np.asarray(np.exp(-most))


def betting_upper_bound(
    losses: npt.ArrayLike,
    epsilon: float,
    delta: float,
    bets: Bets = Bets.WSR,
    prior: Prior = UNINFORMED,
    highest: float = 1.0,
) -> float:
    """Return U of losses (n,): E[D] < U with confidence 1 - delta, and U <= epsilon where the p-value is at most delta.

    The least m at which the same bets, cut to what m allows, reach 1/delta: wealth rises with m.
    ``highest`` where none does. Raises ConfigError as the p-value does.
    """
    checked = _checked(losses, epsilon, delta, highest)
    placed = np.array([float(bet) for bet in _placed(checked, epsilon, delta, bets, prior, highest)])
    aim = -math.log(delta)

    def refuted(mean: float) -> bool:
        cut = np.minimum(placed, _REACH[bets] / (highest - mean))
        return bool(np.max(np.cumsum(np.log1p(-cut * (checked - mean))), initial=0.0) >= aim)

    # First epsilon itself, so that rounding never parts the bound from the test.
    low, high = (-1.0, epsilon) if refuted(epsilon) else (epsilon, highest)
    for _ in range(_STEPS):
        middle = (low + high) / 2.0
        low, high = (low, middle) if refuted(middle) else (middle, high)
    return high


def _placed(
    losses: FloatArray, epsilon: float, delta: float, bets: Bets, prior: Prior, highest: float
) -> Iterator[FloatArray]:
    """Yield lambda_t (...,) for each loss in turn; each is given before the loss is looked at."""
    count = losses.shape[-1]
    aim, most = -math.log(delta), _REACH[bets] / (highest - epsilon)
    wealth, seen = np.zeros(losses.shape[:-1]), prior.weight
    total = wealth + prior.weight * np.asarray(prior.mean)
    squares = wealth + prior.weight * np.asarray(prior.variance)
    for step in range(count):
        variance = squares / seen
        match bets:
            case Bets.WSR:
                wanted = np.sqrt(2.0 * aim / (count * variance))
            case Bets.STAR:
                wanted = np.sqrt(2.0 * np.maximum(0.0, aim - wealth) / ((count - step) * variance))
            case _:
                assert_never(bets)
        bet = np.minimum(wanted, most)
        yield bet
        loss = losses[..., step]
        wealth = wealth + np.log1p(-bet * (loss - epsilon))
        total, seen = total + loss, seen + 1.0
        squares = squares + (loss - total / seen) ** 2


def _checked(losses: npt.ArrayLike, epsilon: float, delta: float, highest: float) -> FloatArray:
    between("delta", delta, 0.0, 1.0)
    between("epsilon", epsilon, -1.0, highest)
    values = np.asarray(losses, dtype=np.float64)
    if not np.isfinite(values).all() or (values > highest + _ROUNDING).any() or (values < -1.0 - _ROUNDING).any():
        raise ConfigError(f"losses: each must be a number from -1 to {highest:g}")
    return np.clip(values, -1.0, highest)


def expected_growth(losses: npt.ArrayLike, epsilon: float) -> FloatArray:
    """Return by how many nats a loss the best constant bet on "E[D] < epsilon" grows on losses (..., Q), at least 0.

    n times that is about the ln(1/p) that n such losses give: what decides how many it takes, by mean and spread.
    """
    values = _checked(losses, epsilon, 0.5, 1.0)
    most = _REACH[Bets.STAR] / (1.0 - epsilon)
    grown = np.zeros(values.shape[:-1])
    for bet in np.linspace(0.0, most, _TRIED)[1:]:
        grown = np.maximum(grown, np.log1p(-bet * (values - epsilon)).mean(axis=-1))
    return grown
