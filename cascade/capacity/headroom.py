"""How many replicas carry a load, with some of them down."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from cascade.errors import ConfigError

__all__ = ["MOST_REPLICAS", "Headroom", "Situation", "Unavailable", "parse_unavailable"]

MOST_REPLICAS: Final = 1_000_000
"""No pool has more: numbers beyond are slips of the pen."""

_ROUNDING: Final = 1e-9
"""A load that is a whole number of replicas but for its last bits needs no further one."""


class Situation(StrEnum):
    """Which replicas are down."""

    ALL_UP = "all_up"
    FAILURE = "failure"
    UPDATE = "update"
    BOTH = "failure_during_update"


@dataclass(frozen=True, slots=True)
class Unavailable:
    """What a rolling update takes down at a time: a count, or a percentage of the replicas, rounded down.

    That is how Kubernetes reads a Deployment's ``maxUnavailable``.
    """

    count: int = 0
    percent: int = 0

    def of(self, replicas: int) -> int:
        """Return how many of the replicas an update takes down."""
        return min(replicas, self.count + replicas * self.percent // 100)

    def __str__(self) -> str:
        return f"{self.percent}%" if self.percent else str(self.count)


def parse_unavailable(written: str) -> Unavailable:
    """Return what ``1`` or ``25%`` says. Raises ConfigError."""
    found = re.fullmatch(r"(\d{1,6})(%?)", written.strip(), re.ASCII)
    if found is None:
        raise ConfigError("--max-unavailable: write a count or a percentage, as in 1 or 25%")
    number = int(found[1])
    if not found[2]:
        return Unavailable(count=number)
    if number >= 100:
        raise ConfigError("--max-unavailable: an update that takes all replicas down leaves none; write less than 100%")
    return Unavailable(percent=number)


@dataclass(frozen=True, slots=True)
class Headroom:
    """What must hold: utilisation with all replicas up, and at most so much while some are down.

    ``at_once`` counts a failure while an update is under way, as rules of N+2 do. Raises ConfigError.
    """

    utilisation: float = 0.6
    most_utilisation: float = 0.85
    failures: int = 1
    unavailable: Unavailable = Unavailable(percent=25)
    at_once: bool = True

    def __post_init__(self) -> None:
        if not 0 < self.utilisation <= self.most_utilisation <= 1:
            raise ConfigError(
                "utilisation and max-utilisation: write shares above 0 up to 1, the first not above the second"
            )
        if not 0 <= self.failures <= MOST_REPLICAS:
            raise ConfigError(f"failures: write a number from 0 to {MOST_REPLICAS}")

    @property
    def situations(self) -> tuple[Situation, ...]:
        """Return what replicas are planned for."""
        return tuple(each for each in Situation if self.at_once or each is not Situation.BOTH)

    def limit(self, situation: Situation) -> float:
        """Return the utilisation that must not be passed."""
        return self.utilisation if situation is Situation.ALL_UP else self.most_utilisation

    def up(self, replicas: int, situation: Situation) -> int:
        """Return how many replicas are up."""
        return max(0, replicas - self._down(replicas, situation))

    def _down(self, replicas: int, situation: Situation) -> int:
        down = 0
        if situation in {Situation.FAILURE, Situation.BOTH}:
            down += self.failures
        if situation in {Situation.UPDATE, Situation.BOTH}:
            down += self.unavailable.of(replicas)
        return down

    def replicas(self, load: float, situation: Situation) -> int:
        """Return the fewest replicas that carry a load (busy replicas) in a situation; none carry no load.

        Raises ConfigError for a load that takes more than a million.
        """
        if load <= 0:
            return 0
        if not load / self.limit(situation) <= MOST_REPLICAS:
            raise ConfigError(
                f"the planned rate keeps more than {MOST_REPLICAS} replicas busy; look at the arrivals, --growth and "
                "--burst, and at the throughputs"
            )
        need = max(1, math.ceil(load / self.limit(situation) - _ROUNDING))
        replicas = need
        while (short := need - replicas + self._down(replicas, situation)) > 0:  # one more adds one at most to those up
            replicas += short
        return replicas

    def needed(self, load: float) -> int:
        """Return the fewest replicas that carry a load in every situation that is planned for."""
        return max(self.replicas(load, situation) for situation in self.situations)

    def carried(self, replicas: int, situation: Situation) -> float:
        """Return the greatest load (busy replicas) that these carry in a situation."""
        return self.up(replicas, situation) * self.limit(situation)
