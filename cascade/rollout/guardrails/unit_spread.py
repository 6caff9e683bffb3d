"""By how much units of traffic differ by themselves: what a release must exceed to be at fault for a difference."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import chain
from typing import Final

import numpy as np

from cascade.rollout.arms import UNIT_NUMBERS
from cascade.rollout.guardrails.observed import Observed

__all__ = ["MOST_UNITS", "UnitSpread"]

MOST_UNITS: Final = 4096
"""Units of an arm that are told apart."""
_STRIDE: Final = 2654435761
"""Spreads what has no unit over the numbers, each answer by itself."""
_BEYOND: Final = 10.0
"""Standard deviations: units that are few and unlike have long tails. Of 50 like releases 7 took five back, and 10 two."""
_FALLBACK: Final = 1
_ERRORS: Final = 2
_COUNTED: Final = 1
_SUMS: Final = 2
_SQUARES: Final = 4
_WIDTH: Final = 9
"""Of a row: answers, those behind the warm-up, the five sums of `ArmComparison`, and the squares of the last two."""
_KNOWN: Final = 8
"""Answers of a unit, of which most are bad or not."""
_BY_CHANCE: Final = 0.001


@dataclass(frozen=True, slots=True)
class _Units:
    """Answers and sum of each unit that is told apart, ``kept`` of all; count and mean are of all answers.

    ``square`` is the mean of the squares of single answers.
    """

    answers: np.ndarray
    sums: np.ndarray
    kept: float
    count: float
    mean: float
    square: float

    def variance(self) -> float:
        """Return the variance between units, by moments."""
        within = max(0.0, self.square - self.mean * self.mean)
        apart = float(np.square(self.sums - self.mean * self.answers).sum()) - within * float(self.answers.sum())
        return max(0.0, apart) / max(1.0, float(np.square(self.answers).sum()))

    def weight(self) -> float:
        """Return what the variance between units is of in the mean."""
        return float(np.square(self.answers).sum()) / self.kept / self.count**2

    def bad(self) -> tuple[int, int]:
        """Return how many units have answers enough, and of how many of these most are bad."""
        known = self.answers >= _KNOWN
        return int(known.sum()), int((known & (self.sums * 2.0 > self.answers)).sum())


class _Arm:
    """Answers of an arm by unit. Where there are more than `MOST_UNITS`, those of the lowest numbers are told apart.

    A number says nothing of its unit, so these are a sample of all units, each with all of its answers.
    """

    def __init__(self) -> None:
        self._rows: dict[int, list[float]] = {}
        self._others = [0.0] * _WIDTH
        self._below = UNIT_NUMBERS

    def add(self, unit: int, observed: Observed, *, warm: bool) -> None:
        row = self._row(unit)
        row[0] += 1.0
        if not warm:
            row[_COUNTED] += 1.0
            if observed.late:
                row[2] += 1.0
            if observed.fallback:
                row[3] += 1.0
        if observed.error:
            row[4] += 1.0
        row[5] += observed.escalated_share
        row[6] += observed.cost
        row[7] += observed.escalated_share * observed.escalated_share
        row[8] += observed.cost * observed.cost

    def _row(self, unit: int) -> list[float]:
        row = self._rows.get(unit)
        if row is None:
            while len(self._rows) >= MOST_UNITS:
                self._halve()
            row = self._others if unit >= self._below else self._rows.setdefault(unit, [0.0] * _WIDTH)
        return row

    def _halve(self) -> None:
        """Tell only half of the numbers apart from now on."""
        self._below //= 2
        gone = [self._rows.pop(unit) for unit in list(self._rows) if unit >= self._below]
        self._others = np.sum([self._others, *gone], axis=0).tolist()

    def of(self, place: int) -> _Units:
        """Return what is known of the sum at a place."""
        rows = np.fromiter(chain.from_iterable(self._rows.values()), np.float64, len(self._rows) * _WIDTH)
        rows = rows.reshape(-1, _WIDTH)
        whole = rows.sum(axis=0) + self._others
        answers, sums = (_COUNTED if place <= _FALLBACK else 0), _SUMS + place
        squares = sums if place <= _ERRORS else _SQUARES + place  # of what is 0 or 1 the square is the same
        count = float(whole[answers])
        mean, square = (float(whole[column]) / max(1.0, count) for column in (sums, squares))
        return _Units(rows[:, answers], rows[:, sums], self._below / UNIT_NUMBERS, count, mean, square)


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

    What is kept is of one step, and of one process; of each arm, of `MOST_UNITS` units.
    """

    def __init__(self) -> None:
        self._stable, self._canary = _Arm(), _Arm()
        self._without = 0

    def stable(self, observed: Observed) -> None:
        """Take an answer of the stable release."""
        self._stable.add(self._unit(observed), observed, warm=False)

    def canary(self, observed: Observed, *, warm: bool) -> None:
        """Take an answer of the canary; of the warm-up it may be late or degraded."""
        self._canary.add(self._unit(observed), observed, warm=warm)

    def is_exceeded(self, place: int, limit: float, factor: float) -> bool:
        """Tell whether the canary's mean is above ``factor`` times the stable one plus ``limit`` by more than units differ.

        ``place`` is that of the sum. It takes a millisecond or two.
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

    def _unit(self, observed: Observed) -> int:
        if observed.unit is not None:
            return observed.unit
        self._without += 1
        return self._without * _STRIDE % UNIT_NUMBERS


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
