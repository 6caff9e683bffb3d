"""Two wagers on one stream of differences: that their mean is above a limit, and that it is below.

The wagers are those of `cascade.statistics.sequential.NonInferiority`, with the same bets and the same wealth. Here both
are kept in one mutable object, since one is updated for each answer, in about a microsecond.
"""

from __future__ import annotations

import math
from typing import Final

from cascade.errors import ConfigError
from cascade.statistics.sample import between

__all__ = ["Wager", "least_to_pass"]

_CAP: Final = 0.9
_KEPT: Final = ("count", "_total", "_squares", "_harm", "_harm_peak", "_pass", "_pass_peak")


class Wager:
    """Whether the mean of differences in [-1, 1] is above ``limit`` (harm) or below (pass), whenever one looks.

    Where it is not above, harm is ever shown with a probability of ``harm_alpha`` at most; where it is not below, a pass with
    ``pass_alpha`` at most.
    """

    __slots__ = (
        "_harm_cap",
        "_harm_nats",
        "_harm_root",
        "_pass_cap",
        "_pass_nats",
        "_pass_root",
        "limit",
        *_KEPT,
    )

    def __init__(self, limit: float, harm_alpha: float, pass_alpha: float) -> None:
        self.limit = between("limit", limit, -1.0, 1.0)
        self._harm_nats = -math.log(between("harm_alpha", harm_alpha, 0.0, 1.0))
        self._pass_nats = -math.log(between("pass_alpha", pass_alpha, 0.0, 1.0))
        self._harm_root, self._pass_root = math.sqrt(self._harm_nats), math.sqrt(self._pass_nats)
        self._harm_cap = 2.0 * _CAP / (1.0 + limit)
        self._pass_cap = 2.0 * _CAP / (1.0 - limit)
        self.count = 0
        self._total = self._squares = 0.0
        self._harm = self._harm_peak = self._pass = self._pass_peak = 0.0

    def add(self, difference: float) -> None:
        """Take one difference more. Raises ConfigError for one that is no number in [-1, 1]."""
        if not -1.0 <= difference <= 1.0:
            raise ConfigError("difference: it is no number in [-1, 1]")
        self.count = seen = self.count + 1
        bet = math.sqrt(2.0 / ((0.25 + self._squares) * math.log1p(seen)))  # of (1/4 + squares) / seen, times seen
        excess = (difference - self.limit) / 2.0
        on_harm, on_pass = bet * self._harm_root, bet * self._pass_root
        # Compared in place: min and max would take as long as all the rest.
        harm = self._harm + math.log1p((on_harm if on_harm < self._harm_cap else self._harm_cap) * excess)  # noqa: FURB136
        passing = self._pass + math.log1p(-(on_pass if on_pass < self._pass_cap else self._pass_cap) * excess)  # noqa: FURB136
        self._harm, self._pass = harm, passing
        if harm > self._harm_peak:  # noqa: PLR1730
            self._harm_peak = harm
        if passing > self._pass_peak:  # noqa: PLR1730
            self._pass_peak = passing
        x = (1.0 + difference) / 2.0
        self._total = total = self._total + x
        self._squares += (x - (0.5 + total) / (seen + 1)) ** 2

    @property
    def shows_harm(self) -> bool:
        """Tell whether a mean above the limit is shown; once shown, it stays so."""
        return self._harm_peak >= self._harm_nats

    @property
    def shows_pass(self) -> bool:
        """Tell whether a mean below the limit is shown; once shown, it stays so."""
        return self._pass_peak >= self._pass_nats

    @property
    def p_harm(self) -> float:
        """Return a p-value of "not above the limit" that holds at every count."""
        return math.exp(-self._harm_peak)

    @property
    def p_pass(self) -> float:
        """Return a p-value of "not below the limit" that holds at every count."""
        return math.exp(-self._pass_peak)

    @property
    def mean(self) -> float | None:
        """Return the mean difference, None before the first."""
        return 2.0 * self._total / self.count - 1.0 if self.count else None

    def state(self) -> list[float]:
        """Return its numbers, to be restored from."""
        return [getattr(self, name) for name in _KEPT]

    def restore(self, state: list[float]) -> None:
        """Take up numbers that `state` returned."""
        for name, value in zip(_KEPT, state, strict=True):
            setattr(self, name, int(value) if name == "count" else float(value))


def least_to_pass(limit: float, pass_alpha: float) -> int | None:
    """Return how many differences a pass needs at least: where all are 0. None where that never passes."""
    if limit <= 0.0:
        return None
    return math.ceil(-math.log(pass_alpha) / math.log1p(_CAP * limit / (1.0 - limit)))
