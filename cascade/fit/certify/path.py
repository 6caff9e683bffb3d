"""The order in which policies are tested, from the safest to the cheapest, chosen on queries that do not certify."""

from __future__ import annotations

from typing import Final

import numpy as np

from cascade.replay.columns import FloatArray
from cascade.statistics.betting import expected_growth

__all__ = ["choose_path"]

_LEAST_STEP: Final = 0.005
"""Share of always-large's pairs between two policies of a path: a finer one is only more chances to stop."""


def choose_path(losses: FloatArray, shares: FloatArray, epsilon: float) -> list[int]:
    """Return which of S policies are tested, in order, from losses (S, Q) and shares of always-large's pairs (S,).

    The front of cost and of how fast a bet on "the mean is below epsilon" is expected to grow: that, not
    the mean loss alone, is what decides whether a policy can be certified with few queries, as the spread
    counts too. It begins at the policy that is easiest to certify; those that cost more are not worth a test.
    """
    growth = expected_growth(losses, epsilon)
    front: list[int] = []
    for policy in np.argsort(shares, kind="stable").tolist():
        if shares[policy] < 1.0 and (not front or growth[policy] > growth[front[-1]]):
            front.append(policy)
    path: list[int] = []
    for policy in reversed(front):
        if not path or shares[policy] <= shares[path[-1]] - _LEAST_STEP:
            path.append(policy)
    return path
