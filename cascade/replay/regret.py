"""What a policy leaves on the table against the best action for each query."""

from __future__ import annotations

import numpy as np

from cascade.replay.columns import FloatArray
from cascade.replay.sweep import Sweep

__all__ = ["best_utility", "regrets"]


def best_utility(first_stage: Sweep, static: Sweep, price: float) -> FloatArray:
    """Return max over actions of U(a) = Q(a) - price x pairs(a) for each query (Q,).

    The actions are the first-stage order, the small order, and the top m of it to the large stage for
    every m, all of it included. The small stage's own cost does not count: only the first action
    spares it. A maximum over many actions, taken on the judgements it is scored on, is optimistic: an upper bound.
    """
    utilities = np.concatenate([_utility(first_stage, price), _utility(static, price)])
    return np.asarray(utilities.max(axis=0))


def regrets(sweep: Sweep, best: FloatArray, price: float) -> FloatArray:
    """Return the regret (S, Q) of each setting. Below zero a policy beat every action."""
    return best - _utility(sweep, price)


def _utility(sweep: Sweep, price: float) -> FloatArray:
    return sweep.quality - price * sweep.pairs
