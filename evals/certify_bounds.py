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
from cascade.statistics.betting import UNINFORMED, Bets, betting_p_value

__all__ = ["BOUNDS", "PValues", "accepted"]

FloatArray = npt.NDArray[np.float64]
PValues = Callable[[FloatArray, float, float, FloatArray], FloatArray]
"""p (S,) of H0: E[D] >= epsilon from losses (S, n), epsilon, delta, and losses (S, Q) of the queries that chose."""

_STEPS: Final = 60


def betting(bets: Bets, weight: float = 0.0) -> PValues:
    """Return betting p-values, told of the choosing queries' means and variances as by ``weight`` losses."""

    def p(losses: FloatArray, epsilon: float, delta: float, chosen: FloatArray) -> FloatArray:
        prior = replace(informed(chosen), weight=weight) if weight else UNINFORMED
        return betting_p_value(losses, epsilon, delta, bets, prior)

    return p


def each(p_of: Callable[[FloatArray, float, float], float]) -> PValues:
    """Return p-values that are worked out one policy after another."""

    def p(losses: FloatArray, epsilon: float, delta: float, chosen: FloatArray) -> FloatArray:
        return np.array([p_of(one, epsilon, delta) for one in losses])

    return p


def goal(losses: FloatArray, epsilon: float, delta: float) -> float:
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


def empirical_bernstein(losses: FloatArray, epsilon: float, delta: float) -> float:
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


def hoeffding_bentkus(losses: FloatArray, epsilon: float, delta: float) -> float:
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


def clt(losses: FloatArray, epsilon: float, delta: float) -> float:
    """Test by Student's statistic and the normal distribution: a reference, valid with many queries only."""
    sd = float(losses.std(ddof=1))
    if sd == 0.0:
        return 0.0 if float(losses.mean()) < epsilon else 1.0
    return NormalDist().cdf((float(losses.mean()) - epsilon) * math.sqrt(losses.size) / sd)


def mean_alone(losses: FloatArray, epsilon: float, delta: float) -> float:
    """Accept what loses less than epsilon on the certifying queries: what one would do without a bound."""
    return 0.0 if float(losses.mean()) <= epsilon else 1.0


BOUNDS: Final[Mapping[str, PValues]] = {
    "star, informed": betting(Bets.STAR, 30.0),
    "star": betting(Bets.STAR),
    "wsr": betting(Bets.WSR),
    "wsr, informed": betting(Bets.WSR, 30.0),
    "goal": each(goal),
    "empirical Bernstein": each(empirical_bernstein),
    "Hoeffding-Bentkus": each(hoeffding_bentkus),
    "CLT (reference)": each(clt),
    "mean alone (reference)": each(mean_alone),
}


def accepted(
    p_of: PValues, losses: FloatArray, chosen: FloatArray, path: Sequence[int], epsilon: float, delta: float
) -> int | None:
    """Return the last policy of a path that a fixed sequence accepts, None where it is none."""
    failed = np.flatnonzero(p_of(losses[list(path)], epsilon, delta, chosen[list(path)]) > delta)
    passed = int(failed[0]) if failed.size else len(path)
    return path[passed - 1] if passed else None
