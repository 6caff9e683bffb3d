"""What a policy leaves on the table against the best action for each query, and which of its decisions left it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import numpy as np
from numpy.typing import NDArray

from cascade.replay.columns import FloatArray
from cascade.replay.sweep import Sweep

__all__ = ["Best", "Cause", "Regret", "best_utility", "largest_cause", "regrets", "split_regret"]

_ROUNDING: Final = 1e-12
"""Differences of utility that are the same number added up in another order."""


class Cause(StrEnum):
    """Which decision a regret comes from. The list is closed."""

    MISSED_ESCALATION = "missed_escalation"
    WASTED_ESCALATION = "wasted_escalation"
    WRONG_DEPTH = "wrong_depth"
    WRONG_CLUSTER = "wrong_cluster"
    FALSE_EXCLUSION = "false_exclusion"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Best:
    """The best action of each query, and the best one at the depth that a policy chose; arrays (Q,).

    ``utility`` is the best action's and ``deeper`` tells whether it scores deeper than the policy did.
    ``reached`` is the greatest utility of any escalation at the policy's depth, ``sends`` whether that one
    sends anything.
    """

    utility: FloatArray
    deeper: NDArray[np.bool_]
    reached: FloatArray
    sends: NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Regret:
    """The regret of each query (Q,), and the parts (Q,) that sum to it. Only ``other`` may be below zero."""

    total: FloatArray
    parts: dict[Cause, FloatArray]


def split_regret(utility: FloatArray, sends: NDArray[np.bool_], best: Best) -> Regret:
    """Divide what a policy of this utility (Q,) regrets among its decisions; ``sends`` tells where it escalated.

    The value each decision gives away while those after it are made as well as can be, in the order in which they
    are made (the advantages of the performance difference lemma, Kakade and Langford, ICML 2002), so that
    the parts sum to the whole and no decision is blamed for a later one. First the depth: the best
    action's utility minus the best within reach at that depth. Too shallow, it is a false exclusion: where
    no relevant document beyond the depth is in the best action's top, the same action without the candidates
    beyond is as good. Otherwise the depth is wrong: too deep. Then the escalation, one decision: the best
    within reach minus the policy's own utility. It is missed where nothing was sent, wasted where sending
    nothing is best, and of the wrong cluster where another set is. A policy above every action has a total
    below zero, as ``other``, and a policy above the best action's depth gives away nothing by its own.
    """
    top = np.maximum(best.utility, utility)
    reached = np.clip(best.reached, utility, top)
    depth, escalation = top - reached, reached - utility
    none = np.zeros(utility.shape)
    parts = {
        Cause.MISSED_ESCALATION: np.where(sends, none, escalation),
        Cause.WASTED_ESCALATION: np.where(sends & ~best.sends, escalation, none),
        Cause.WRONG_DEPTH: np.where(best.deeper, none, depth),
        Cause.WRONG_CLUSTER: np.where(sends & best.sends, escalation, none),
        Cause.FALSE_EXCLUSION: np.where(best.deeper, depth, none),
        Cause.OTHER: np.minimum(best.utility - utility, 0.0),
    }
    return Regret(best.utility - utility, parts)


def largest_cause(regret: Regret) -> list[Cause | None]:
    """Return of each query the part that is farthest from zero, the first of equals, None where all are zero."""
    causes = tuple(regret.parts)
    sizes = np.abs(np.stack([regret.parts[cause] for cause in causes]))
    largest = np.argmax(sizes, axis=0)
    return [causes[at] if size > _ROUNDING else None for at, size in zip(largest, sizes.max(axis=0), strict=True)]


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
