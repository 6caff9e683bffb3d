"""Why nothing could be certified, and how many queries it would take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cascade.calibration.certificate import Attempts
from cascade.fit.certify.asked import Asked
from cascade.fit.certify.levels import Budget
from cascade.replay.columns import FloatArray
from cascade.statistics.power import least_queries, queries_needed

__all__ = ["Refusal", "refused"]


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why there is no certificate.

    ``least`` is how many queries must certify where none of them loses anything, ``needed`` about how many at
    the mean and spread of the easiest policy, None where its mean is not below epsilon. ``says`` are sentences.
    """

    queries: int
    least: int | None
    needed: int | None
    says: tuple[str, ...]


def refused(
    asked: Asked, budget: Budget, attempt: Attempts, every: FloatArray, path: Sequence[int], n: int, p: Sequence[float]
) -> Refusal:
    """Say why no policy of ``path`` was certified, from losses (S, Q) of all queries that chose it or were to certify it.

    The mean and spread are those of the first of the path, which is the easiest to certify. They are advice, and test
    nothing.
    """
    if not path:
        return Refusal(
            n, None, None, ("no policy is cheaper than always-large and expected to lose less than epsilon",)
        )
    if budget.epsilon <= 0.0:
        return Refusal(
            n, None, None,
            (f"levels and fallbacks alone may lose more than epsilon {asked.epsilon:g}: nothing is left for the policy",),
        )  # fmt: skip
    easiest = every[path[0]]
    mean, sigma = float(easiest.mean()), float(np.std(easiest))
    least = least_queries(budget.epsilon, budget.delta)
    needed = queries_needed(sigma, mean, budget.epsilon, budget.delta)
    says = [
        f"{n} queries certify, and the easiest policy has p {p[0]:.3g}: above delta, {budget.delta:.3g} at attempt {attempt.number}",
        f"its mean loss {mean:.4f} on all {easiest.size} queries is not below epsilon: no number of queries would do"
        if needed is None
        else f"about {needed} would do at its mean loss {mean:.4f} and spread {sigma:.3f} on all {easiest.size} queries",
    ]
    if n < least and (needed is None or least <= needed):
        says.insert(1, f"at least {least} must certify even where none of them loses anything")
    return Refusal(n, least, needed, tuple(says))
