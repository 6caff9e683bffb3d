"""Who asks in a simulated rollout: callers of their own kinds, each always answered by one release."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from cascade.rollout.arms import UNIT_NUMBERS

__all__ = ["Asked", "Bools", "Callers", "Floats", "failing_callers", "heavy_callers"]

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Asked:
    """Requests of a moment: whose, which the canary answers, how likely each is late or in error, its best score's mean."""

    units: list[int | None]
    canary: Bools
    late: Floats
    error: Floats
    top: Floats


class Callers:
    """Callers, each in one arm for good: how much each asks, how likely it is late or in error, and its best scores' mean."""

    def __init__(self, rng: np.random.Generator, ask: Floats, late: Floats, error: Floats, top: Floats) -> None:
        self._rng = rng
        self._ask = (ask / ask.sum()).cumsum()
        self._late, self._error, self._top = late, error, top
        self._place = rng.random(ask.size)
        self._numbers = rng.integers(UNIT_NUMBERS, size=ask.size)

    def asked(self, count: int, share: float) -> Asked:
        """Return who asks next."""
        who = np.minimum(self._ask.searchsorted(self._rng.random(count)), self._ask.size - 1)
        units = self._numbers[who].tolist()
        return Asked(units, self._place[who] < share, self._late[who], self._error[who], self._top[who])


def heavy_callers(rng: np.random.Generator) -> Callers:
    """Return 300 who ask very unlike much, each with a lateness and scores of its own."""
    return Callers(
        rng, 1.0 / np.arange(1, 301), rng.beta(0.2, 9.8, 300), np.full(300, 0.001), rng.normal(0.0, 0.5, 300)
    )


def failing_callers(rng: np.random.Generator) -> Callers:
    """Return 20,000 who ask alike, of whom one in fifty always gets an error."""
    count = 20_000
    error = (rng.random(count) < 0.02).astype(np.float64)
    return Callers(rng, np.ones(count), np.full(count, 0.005), error, np.zeros(count))
