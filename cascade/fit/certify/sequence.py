"""Fixed-sequence testing: policies one after another in an order fixed beforehand, until one fails."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from cascade.replay.columns import FloatArray
from cascade.statistics.betting import UNINFORMED, Bets, Prior, betting_p_value

__all__ = ["Tested", "fixed_sequence", "informed"]

_WEIGHT: Final = 30.0
"""As how many certifying losses the choosing ones count when bets begin: measured on real scores, evals/certify.md."""
_LEAST_VARIANCE: Final = 1e-5


@dataclass(frozen=True, slots=True)
class Tested:
    """The p-values of the policies that were tested, which was accepted last, None where none was, and how many were."""

    p: tuple[float, ...]
    accepted: int | None
    count: int = 0


def informed(chosen: FloatArray) -> Prior:
    """Return what losses (S, Q) of the queries that chose the path make bets believe of each policy's (S,)."""
    return Prior(chosen.mean(axis=-1), chosen.var(axis=-1) + _LEAST_VARIANCE, _WEIGHT)


def fixed_sequence(
    losses: FloatArray,
    path: Sequence[int],
    epsilon: float,
    delta: float,
    bets: Bets = Bets.WSR,
    prior: Prior = UNINFORMED,
) -> Tested:
    """Test H_j: E[loss of policy j] >= epsilon along ``path``, each at the whole of ``delta``; stop at the first p above.

    ``losses`` are (S, n). The probability that any accepted policy loses more is at most delta, whatever the
    order is, as long as these losses had no part in it; losses need not rise along the path (Angelopoulos et
    al., Learn then Test, 2021).
    """
    if not path:
        return Tested((), None)
    # All at once, since that is one pass over the queries; what stands behind the first to fail is not looked at.
    p = betting_p_value(losses[list(path)], epsilon, delta, bets, prior)
    failed = np.flatnonzero(p > delta)
    accepted = int(failed[0]) if failed.size else len(path)
    return Tested(tuple(p[: accepted + 1].tolist()), path[accepted - 1] if accepted else None, accepted)
