"""Bounds that certifying was tried with beside its own: they lost, or are not valid."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from statistics import NormalDist
from typing import Final

import numpy as np
import numpy.typing as npt

from cascade.fit.certify.sequence import informed
from cascade.statistics.betting import Bets, Prior, betting_p_value

__all__ = ["BOUNDS", "PValue", "accepted"]

FloatArray = npt.NDArray[np.float64]
PValue = Callable[[FloatArray, float, float, FloatArray], float]
"""p of H0: E[D] >= epsilon from losses (n,), epsilon, delta, and losses of the queries that chose (Q,)."""

_STEPS: Final = 60


def betting(bets: Bets, weight: float = 0.0) -> PValue:
    """Return a betting p-value, told of the choosing queries' mean and variance as by ``weight`` losses."""

    def p(losses: FloatArray, epsilon: float, delta: float, chosen: FloatArray) -> float:
        prior = Prior()
        if weight:
            prior = replace(informed(chosen), weight=weight)
        return float(betting_p_value(losses, epsilon, delta, bets, prior))

    return p


def goal(losses: FloatArray, epsilon: float, delta: float, chosen: FloatArray) -> float:
    """Bet as one would to hold 1/delta after n losses, were they Gaussian (Browne, 1999): phi(z) / (u sd sqrt(left)).

    u is delta times the wealth and z its normal quantile. Where it bets as its prior says, at every time it
    replicates the z-test.
    """
    normal, left = NormalDist(), losses.size
    total, squares, seen = 0.0, 1.0, 1.0
    log_wealth = best = 0.0
    for loss in losses.tolist():
        share = min(1.0, delta * math.exp(log_wealth))
        bet = 0.0
        if 1e-12 < share < 1.0:
            bet = normal.pdf(normal.inv_cdf(share)) / (share * math.sqrt(left * squares / seen))
        log_wealth += math.log1p(-min(bet, 0.99 / (1.0 - epsilon)) * (loss - epsilon))
        best = max(best, log_wealth)
        left -= 1
        total, seen = total + loss, seen + 1.0
        squares += (loss - total / seen) ** 2
    return math.exp(-best)


def empirical_bernstein(losses: FloatArray, epsilon: float, delta: float, chosen: FloatArray) -> float:
    """Invert Maurer and Pontil's bound (2009) on x = (1 + D) / 2."""
    x, m, n = (1.0 + losses) / 2.0, (1.0 + epsilon) / 2.0, losses.size
    gap, variance = m - float(x.mean()), float(x.var(ddof=1))
    if gap <= 0.0:
        return 1.0
    low, high = 0.0, 700.0
    for _ in range(_STEPS):
        nats = (low + high) / 2.0
        reach = math.sqrt(2.0 * variance * nats / n) + 7.0 * nats / (3.0 * (n - 1))
        low, high = (nats, high) if reach < gap else (low, nats)
    return min(1.0, 2.0 * math.exp(-low))


def hoeffding_bentkus(losses: FloatArray, epsilon: float, delta: float, chosen: FloatArray) -> float:
    """Bates et al. (2021); on losses in [0, 1] as they are, else on x = (1 + D) / 2."""
    x, m = (losses, epsilon) if float(losses.min()) >= 0.0 else ((1.0 + losses) / 2.0, (1.0 + epsilon) / 2.0)
    n, mean = x.size, float(x.mean())
    if mean >= m:
        return 1.0
    kl = (mean * math.log(mean / m) if mean else 0.0) + (1.0 - mean) * math.log((1.0 - mean) / (1.0 - m))
    counts = np.arange(math.ceil(n * mean) + 1)
    ways = np.concatenate([[0.0], np.cumsum(np.log((n - counts[1:] + 1.0) / counts[1:]))])
    below = float(np.exp(np.logaddexp.reduce(ways + counts * math.log(m) + (n - counts) * math.log1p(-m))))
    return min(1.0, math.exp(-n * kl), math.e * below)


def clt(losses: FloatArray, epsilon: float, delta: float, chosen: FloatArray) -> float:
    """Test by Student's statistic and the normal distribution: a reference, valid with many queries only."""
    sd = float(losses.std(ddof=1))
    if sd == 0.0:
        return 0.0 if float(losses.mean()) < epsilon else 1.0
    return NormalDist().cdf((float(losses.mean()) - epsilon) * math.sqrt(losses.size) / sd)


def mean_alone(losses: FloatArray, epsilon: float, delta: float, chosen: FloatArray) -> float:
    """Accept what loses less than epsilon on the certifying queries: what one would do without a bound."""
    return 0.0 if float(losses.mean()) <= epsilon else 1.0


BOUNDS: Final[Mapping[str, PValue]] = {
    "star, informed": betting(Bets.STAR, 30.0),
    "star": betting(Bets.STAR),
    "wsr": betting(Bets.WSR),
    "wsr, informed": betting(Bets.WSR, 30.0),
    "goal": goal,
    "empirical Bernstein": empirical_bernstein,
    "Hoeffding-Bentkus": hoeffding_bentkus,
    "CLT (reference)": clt,
    "mean alone (reference)": mean_alone,
}


def accepted(
    p_of: PValue, losses: FloatArray, chosen: FloatArray, path: Sequence[int], epsilon: float, delta: float
) -> int | None:
    """Return the last policy of a path that a fixed sequence accepts, None where it is none."""
    last = None
    for policy in path:
        if p_of(losses[policy], epsilon, delta, chosen[policy]) > delta:
            break
        last = policy
    return last
