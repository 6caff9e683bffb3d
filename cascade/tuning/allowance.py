"""Share a time among trials that are not all known beforehand."""

from __future__ import annotations

from dataclasses import dataclass

from cascade.guard.deadline import Clock

__all__ = ["Allowance", "Least"]


@dataclass(frozen=True, slots=True)
class Least:
    """Seconds that it took to load a first model, and that the least trial of each kind takes."""

    began_s: float
    closed_s: float
    open_s: float


class Allowance:
    """Time that is left for weighted trials: what one did not use, or used too much, the later ones share."""

    def __init__(self, seconds: float, clock: Clock) -> None:
        self._until = clock() + seconds
        self._clock = clock
        self._left = 1.0

    def plan(self, weights: float) -> None:
        """Say how much weight is still to come, from now to the end."""
        self._left = max(weights, 1e-9)

    def take(self, weight: float) -> float:
        """Return the seconds for trials of this weight; 0 where the time is over: each then does the least it can."""
        share = min(1.0, weight / self._left)
        self._left = max(self._left - weight, 1e-9)
        return max(0.0, self._until - self._clock()) * share
