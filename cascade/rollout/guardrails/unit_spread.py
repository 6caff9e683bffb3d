"""By how much units of traffic differ by themselves: what a release must exceed to be at fault for a difference."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from cascade.rollout.guardrails.observed import Observed

__all__ = ["UnitSpread"]

_BUCKETS: Final = 4096
_STRIDE: Final = 2654435761
"""Spreads what has no unit over the buckets, each answer by itself."""
_BEYOND: Final = 10.0
"""Standard deviations: units that are few and unlike have long tails. Of 50 like releases 7 took five back, and 10 two."""
_FALLBACK: Final = 1
_ERRORS: Final = 2
_KNOWN: Final = 8
"""Answers of a unit, of which most are bad or not."""
_BY_CHANCE: Final = 0.001


@dataclass(frozen=True, slots=True)
class _Units:
    """Answers by bucket, their sums, and the sum of the squares of single answers; None where each is 0 or 1."""

    answers: np.ndarray
    sums: np.ndarray
    squares: float | None

    @property
    def count(self) -> float:
        """Return the number of all answers."""
        return float(self.answers.sum())

    @property
    def mean(self) -> float:
        """Return the mean of all answers; there is one at least."""
        return float(self.sums.sum()) / self.count

    def variance(self) -> float:
        """Return the variance between units, by moments."""
        count, mean = self.count, self.mean
        within = (mean if self.squares is None else self.squares / count) - mean * mean
        apart = float(np.square(self.sums - mean * self.answers).sum()) - max(0.0, within) * count
        return max(0.0, apart) / float(np.square(self.answers).sum())

    def weight(self) -> float:
        """Return what the variance between units is of in the mean."""
        return float(np.square(self.answers).sum()) / self.count**2

    def bad(self) -> tuple[int, int]:
        """Return how many units have answers enough, and of how many of these most are bad."""
        known = self.answers >= _KNOWN
        return int(known.sum()), int((known & (self.sums * 2.0 > self.answers)).sum())


class _Arm:
    """Answers by bucket, those behind the warm-up, and the five sums of `ArmComparison`."""

    def __init__(self) -> None:
        self.answers, self.counted = [0.0] * _BUCKETS, [0.0] * _BUCKETS
        self.sums = [[0.0] * _BUCKETS for _ in range(5)]
        self.squares = [0.0, 0.0]

    def add(self, bucket: int, observed: Observed, *, warm: bool) -> None:
        self.answers[bucket] += 1.0
        late, fallback, errors, escalated, cost = self.sums
        if not warm:
            self.counted[bucket] += 1.0
            if observed.late:
                late[bucket] += 1.0
            if observed.fallback:
                fallback[bucket] += 1.0
        if observed.error:
            errors[bucket] += 1.0
        escalated[bucket] += observed.escalated_share
        cost[bucket] += observed.cost
        self.squares[0] += observed.escalated_share * observed.escalated_share
        self.squares[1] += observed.cost * observed.cost

    def of(self, place: int) -> _Units:
        """Return what is known of the sum at a place."""
        answers = np.asarray(self.counted if place <= _FALLBACK else self.answers)
        return _Units(answers, np.asarray(self.sums[place]), None if place <= _ERRORS else self.squares[place - 3])


class UnitSpread:
    """Tell whether the canary is worse by more than the units that it answers may differ by themselves.

    Requests are dealt by unit and stay dealt, so where units are few and unlike, arms differ though releases do not. Let
    the arm of more answers have answered n_u of unit u, y_u of them late, in all N; r is the mean and w the variance of single
    answers. The variance between units is, by moments, tau^2 = max(0, (sum (y_u - r n_u)^2 - w N) / sum n_u^2), about 0 where
    units are many or alike. The mean of the other arm, over m_u answers of its units, then differs by itself with the
    variance tau^2 sum m_u^2 / (sum m_u)^2. Chance within units is what the wagers are for.

    One large unit that always fails makes tau^2 so large that few others could not fail badly enough. So units are also
    counted of which most answers are bad: they are dealt at random, so of B in all T the canary has as many as j of its k
    with a probability of exp(-k KL(j / k, B / T)) at most, however large each is (Hoeffding 1963, theorem 4).

    Units are told apart by bucket. What is kept is of one step, and of one process.
    """

    def __init__(self) -> None:
        self._stable, self._canary = _Arm(), _Arm()
        self._without = 0

    def stable(self, observed: Observed) -> None:
        """Take an answer of the stable release."""
        self._stable.add(self._bucket(observed), observed, warm=False)

    def canary(self, observed: Observed, *, warm: bool) -> None:
        """Take an answer of the canary; of the warm-up it may be late or degraded."""
        self._canary.add(self._bucket(observed), observed, warm=warm)

    def is_exceeded(self, place: int, limit: float, factor: float) -> bool:
        """Tell whether the canary's mean is above ``factor`` times the stable one plus ``limit`` by more than units differ.

        ``place`` is that of the sum. It takes about a millisecond.
        """
        stable, canary = self._stable.of(place), self._canary.of(place)
        if not stable.count or not canary.count:
            return False
        excess = canary.mean - factor * stable.mean - limit
        if excess <= 0.0:
            return False
        if place <= _ERRORS and _more_are_bad(stable, canary):
            return True
        if stable.count >= canary.count:
            variance = factor * factor * stable.variance() * canary.weight()
        else:
            variance = canary.variance() * stable.weight()
        return excess > _BEYOND * math.sqrt(variance)

    def _bucket(self, observed: Observed) -> int:
        if observed.unit is not None:
            return observed.unit % _BUCKETS
        self._without += 1
        return self._without * _STRIDE % _BUCKETS


def _more_are_bad(stable: _Units, canary: _Units) -> bool:
    """Tell whether more of the canary's units have mostly bad answers than chance deals to it."""
    (others, others_bad), (own, own_bad) = stable.bad(), canary.bad()
    if not own_bad:
        return False
    share, expected = own_bad / own, (own_bad + others_bad) / (own + others)
    if share <= expected:
        return False
    good = (1.0 - share) * math.log((1.0 - share) / (1.0 - expected)) if share < 1.0 else 0.0
    return own * (share * math.log(share / expected) + good) >= -math.log(_BY_CHANCE)
