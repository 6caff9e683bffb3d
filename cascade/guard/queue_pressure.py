"""The numbers that the controller of load levels looks at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from cascade.types import BreakerState, StageName

__all__ = ["Gate", "LevelBound", "LevelWork", "QueuePressure", "Room", "StagePressure"]


class Room(Protocol):
    """Where the work of a stage is bounded: how many texts are in flight, how many may be, and who waits."""

    @property
    def in_flight(self) -> int: ...

    @property
    def limit(self) -> int: ...

    @property
    def oldest_wait_ms(self) -> float:
        """Return how long the first in line for room has waited by now, 0 where none waits."""
        ...


class Gate(Protocol):
    """What lets rounds through to a stage, or does not: its breaker."""

    @property
    def state(self) -> BreakerState:
        """Return whether it is closed; it is half open from the first probe on."""
        ...

    @property
    def is_open(self) -> bool:
        """Tell whether nothing will be let through for a while."""
        ...

    @property
    def refuses(self) -> bool:
        """Tell whether nothing is let through now: also while a half open breaker waits for its probe."""
        ...


@dataclass(frozen=True, slots=True)
class LevelBound:
    """The most pairs of a request that a level sends to each stage, by its rules alone."""

    small: int
    large: int

    def of(self, stage: StageName) -> int:
        """Return the most pairs that go to a stage."""
        return self.large if stage is StageName.LARGE else self.small


@dataclass(frozen=True, slots=True)
class LevelWork:
    """What requests that a level decided, and that went as it plans, sent to the stages."""

    requests: int = 0
    small_pairs: int = 0
    large_pairs: int = 0


@dataclass(frozen=True, slots=True)
class StagePressure:
    """One stage in a window.

    ``scored`` counts pairs. ``in_flight``, ``limit`` and ``oldest_wait_ms`` are those of the moment, 0 where the stage
    has no bound. ``min_wait_ms`` is None where too few waits were told of. ``misses`` are those that began at this stage.
    ``breaker_closed`` is False until its probes have closed it again, also once ``breaker_open`` is over.
    """

    scored: int = 0
    in_flight: int = 0
    limit: int = 0
    min_wait_ms: float | None = None
    oldest_wait_ms: float = 0.0
    misses: int = 0
    breaker_open: bool = False
    breaker_closed: bool = True

    @property
    def is_shut(self) -> bool:
        """Tell whether nobody asks it, but for a probe at most."""
        return self.breaker_open or not self.breaker_closed

    @property
    def busy_share(self) -> float | None:
        """Return the share of the bound that is in flight, None without a bound."""
        return self.in_flight / self.limit if self.limit else None


@dataclass(frozen=True, slots=True)
class QueuePressure:
    """The numbers of a window, as a look found them.

    ``arrivals`` came since the look before. Of ``judged`` requests that the level of the moment decided,
    ``predicted_misses`` had no time for what it plans: both are 0 until there are enough. ``judged_above`` and
    ``misses_above`` are the same of what the level above decided, where it seemed to have room. ``admission_wait_ms`` is
    the least time that requests waited for their turn, None where too few are told of; ``queue_ms`` is how long the
    first in line for it has waited by now.
    """

    arrivals: int = 0
    judged: int = 0
    predicted_misses: int = 0
    judged_above: int = 0
    misses_above: int = 0
    admission_wait_ms: float | None = None
    queue_ms: float = 0.0
    small: StagePressure = StagePressure()
    large: StagePressure = StagePressure()
    work: Mapping[int, LevelWork] = field(default_factory=dict)

    @property
    def stages(self) -> tuple[tuple[StageName, StagePressure], ...]:
        """Return both stages by name."""
        return (StageName.SMALL, self.small), (StageName.LARGE, self.large)

    @property
    def min_wait_ms(self) -> float | None:
        """Return the least time that requests waited at the place where that is longest, None where none is told of."""
        told = (self.admission_wait_ms, self.small.min_wait_ms, self.large.min_wait_ms)
        return max((each for each in told if each is not None), default=None)

    @property
    def oldest_wait_ms(self) -> float:
        """Return how long the first in line has waited by now, at the place where that is longest."""
        return max(self.queue_ms, self.small.oldest_wait_ms, self.large.oldest_wait_ms)

    @property
    def in_flight(self) -> int:
        """Return the texts in flight at both stages."""
        return self.small.in_flight + self.large.in_flight

    @property
    def limit(self) -> int:
        """Return the most texts in flight at both stages."""
        return self.small.limit + self.large.limit

    @property
    def busy_share(self) -> float:
        """Return the share of its bound that the busier stage has in flight."""
        return max(self.small.busy_share or 0.0, self.large.busy_share or 0.0)

    @property
    def small_breaker_open(self) -> bool:
        """Tell whether nothing is sent to the small stage."""
        return self.small.breaker_open

    @property
    def large_breaker_open(self) -> bool:
        """Tell whether nothing is sent to the large stage."""
        return self.large.breaker_open
