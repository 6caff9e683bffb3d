"""How many queries a claim needs: "at most epsilon below always-large, with confidence 1 - delta".

A loss is D = Q_large - Q_policy of one query: ``mu`` is its mean, ``sigma`` its standard deviation, ``half_width``
the most that it can be. Two numbers are told apart. That of an asymptotic non-inferiority test says what an
experiment can detect. That of a certificate is larger, since its bound holds at any number of queries.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import Final

import numpy.typing as npt

from cascade.errors import ConfigError
from cascade.statistics.permutation import FLIPS, Alternative, sign_flip_test
from cascade.statistics.sample import between, finite, not_negative

__all__ = [
    "Claim",
    "claim",
    "detectable_loss",
    "least_queries",
    "non_inferiority_p",
    "non_inferiority_queries",
    "queries_needed",
]

_POWER: Final = 0.9
_FITTED: Final = 1.5
"""What the leading terms of the betting bound are multiplied by to reach 80% power, fitted to simulated runs."""


def non_inferiority_p(losses: npt.ArrayLike, epsilon: float, *, flips: int = FLIPS, seed: int = 0) -> float:
    """Return the p-value of H0: E[D] >= epsilon for losses (n,), by sign flips of D - epsilon.

    Asymptotic where D - epsilon is not symmetric, as Student's t is: losses that are rare and large may
    not have been seen yet, and p is too small then. No such p certifies anything with fewer than
    ``least_queries``. Raises ConfigError for NaN, infinite or no losses.
    """
    shifted = finite("losses", losses) - epsilon
    return sign_flip_test(shifted, alternative=Alternative.LESS, flips=flips, seed=seed).p


def non_inferiority_queries(sigma: float, mu: float, epsilon: float, delta: float, power: float = _POWER) -> int | None:
    """Return n = (z_{1-delta} + z_power)^2 sigma^2 / (epsilon - mu)^2, None where mu >= epsilon.

    With so many queries an asymptotic test at level ``delta`` shows E[D] < epsilon with probability ``power``.
    """
    gap = between("epsilon", epsilon, -math.inf, math.inf) - mu
    if not gap > 0.0:
        return None
    return max(1, math.ceil((_z(delta, power) * not_negative("sigma", sigma) / gap) ** 2))


def detectable_loss(queries: int, sigma: float, delta: float, power: float = _POWER) -> float:
    """Return the least epsilon - mu that ``queries`` show with probability ``power``: the formula above, turned."""
    if queries < 1:
        raise ConfigError(f"queries: {queries} is not at least 1")
    return _z(delta, power) * not_negative("sigma", sigma) / math.sqrt(queries)


def least_queries(epsilon: float, delta: float, half_width: float = 1.0) -> int:
    """Return how many queries it takes where each has a loss of exactly zero: ln delta / ln(1 - epsilon/half_width).

    About ln(1/delta) half_width / epsilon. With fewer, a policy that loses ``half_width`` on a share
    epsilon/half_width of queries shows no loss with a probability above ``delta``: no valid bound can tell it.
    """
    share = between("epsilon", epsilon, 0.0, half_width) / half_width
    return math.ceil(math.log(between("delta", delta, 0.0, 1.0)) / math.log1p(-share))


def queries_needed(sigma: float, mu: float, epsilon: float, delta: float, half_width: float = 1.0) -> int | None:
    """Return about how many queries certify epsilon with 80% power, None where mu >= epsilon.

    1.5 [2 L sigma^2 / (epsilon - mu)^2 + L half_width / (epsilon - mu)], L = ln(1/delta): a rule fitted
    to simulated runs of the betting bound on losses that are mostly zero.
    """
    gap = between("epsilon", epsilon, 0.0, half_width) - mu
    if not gap > 0.0:
        return None
    nats = -math.log(between("delta", delta, 0.0, 1.0))
    return math.ceil(_FITTED * nats * (2.0 * (not_negative("sigma", sigma) / gap) ** 2 + half_width / gap))


@dataclass(frozen=True, slots=True)
class Claim:
    """Whether so many queries can support a claim, and in words.

    ``least`` is what it takes where no query loses or gains anything, ``needed`` about what it takes at
    the mean and spread seen: None where that mean is itself not below epsilon, or no spread is known.
    """

    queries: int
    epsilon: float
    delta: float
    least: int
    needed: int | None
    supported: bool
    says: str


def claim(queries: int, sigma: float | None, mu: float, epsilon: float, delta: float, half_width: float = 1.0) -> Claim:
    """Say whether ``queries`` can certify a mean loss of at most epsilon at the mean and spread seen.

    ``sigma`` is None where too few queries were seen to have a spread. Gains of single queries are losses
    below zero and offset others.
    """
    least = least_queries(epsilon, delta, half_width)
    needed = None if sigma is None else queries_needed(sigma, mu, epsilon, delta, half_width)
    supported = needed is not None and queries >= needed
    amount, asked = _percent(epsilon), f"at {100.0 * (1.0 - delta):.4g}% confidence"
    minimum = f"at least {least:,} are needed {asked} even if no query loses anything"
    seen = f"about {float(f'{needed or 0:.3g}'):,.0f} at the mean loss ({mu:.3g}) and spread ({sigma or 0.0:.3g}) seen"
    if sigma is None:
        says = f"{queries:,} queries cannot certify {amount}: {minimum}, and their spread is not known"
    elif needed is None:
        why = f"the mean loss seen is {_percent(mu)}, at which no number of queries does"
        says = f"{queries:,} queries cannot certify {amount}: {minimum + '; ' if queries < least else ''}{why}"
    elif supported:
        says = f"{queries:,} queries can support a claim of {amount} {asked}: it takes {seen}"
    elif queries < least <= needed:
        says = f"{queries:,} queries cannot certify {amount}: {minimum}; {seen}"
    else:
        says = f"{queries:,} queries are too few to count on certifying {amount} {asked}: it takes {seen}"
    return Claim(queries, epsilon, delta, least, needed, supported, says)


def _percent(value: float) -> str:
    return f"{100.0 * value:.3g}%"


def _z(delta: float, power: float) -> float:
    normal = NormalDist()
    return normal.inv_cdf(1.0 - between("delta", delta, 0.0, 1.0)) + normal.inv_cdf(between("power", power, 0.0, 1.0))
