"""Whether a policy is shown to lose less than epsilon against always-large, and how many queries showing it takes."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from cascade.replay.columns import FloatArray
from cascade.replay.intervals import LEAST_QUERIES
from cascade.statistics.betting import betting_p_value
from cascade.statistics.power import claim, detectable_loss, non_inferiority_p, non_inferiority_queries

__all__ = ["DELTA", "EPSILONS", "non_inferiority", "power"]

EPSILONS: Final = (0.005, 0.01, 0.02)
DELTA: Final = 0.1
_POWER: Final = 0.9
_FEW: Final = f"fewer than {LEAST_QUERIES} queries"


def non_inferiority(name: str, losses: FloatArray, seed: int, flips: int) -> list[dict[str, Any]]:
    """Return for each epsilon whether the mean loss (Q,) of ``name`` is shown to be less, and what that takes.

    ``shown`` follows from the p-value of the betting bound that certificates use, which holds for any law
    of losses and any number of queries. Queries are shuffled first, since tables one after the other are
    no sample in sequence. From the greatest epsilon to the least the three need no adjustment: no step
    can be shown where the one before is not.
    """
    mean, sigma = float(losses.mean()), _spread(losses)
    shuffled = np.random.default_rng(seed).permutation(losses)
    rows = []
    for epsilon in EPSILONS:
        found = claim(losses.size, sigma, mean, epsilon, DELTA)
        p_betting = float(betting_p_value(shuffled, epsilon, DELTA))
        rows.append(
            {
                "name": name,
                "epsilon": epsilon,
                "delta": DELTA,
                "p": non_inferiority_p(losses, epsilon, flips=flips, seed=seed),
                "p_betting": p_betting,
                "shown": p_betting <= DELTA,
                "queries_least": found.least,
                "queries_needed": found.needed,
                "supported": found.supported,
                "says": found.says,
            }
        )
    return rows


def power(name: str, losses: FloatArray) -> dict[str, Any]:
    """Return what an asymptotic test of as many queries detects at the spread seen, undefined for very few."""
    mean, sigma = float(losses.mean()), _spread(losses)
    told = {"name": name, "queries": losses.size, "mean_loss": mean, "delta": DELTA, "power": _POWER}
    if sigma is None:
        undefined = {"sigma": None, "detectable_loss": None, "queries_to_detect": None}
        return {**told, **undefined, "reasons": dict.fromkeys(undefined, _FEW)}
    return {
        **told,
        "sigma": sigma,
        "detectable_loss": detectable_loss(losses.size, sigma, DELTA, _POWER),
        "queries_to_detect": [
            [epsilon, non_inferiority_queries(sigma, mean, epsilon, DELTA, _POWER)] for epsilon in EPSILONS
        ],
        "reasons": {},
    }


def _spread(losses: FloatArray) -> float | None:
    return float(losses.std(ddof=1)) if losses.size >= LEAST_QUERIES else None
