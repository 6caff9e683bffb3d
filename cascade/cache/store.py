"""The contract of what keeps scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from cascade.guard.deadline import Deadline

__all__ = ["Found", "LostReason", "Store", "WriteDrop"]


class LostReason(StrEnum):
    """Why a kept score is kept no longer. The list is closed."""

    ROOM = "room"
    AGE = "age"


class WriteDrop(StrEnum):
    """Why a score was not written. The list is closed."""

    QUEUE = "queue"
    FAULT = "fault"


@dataclass(frozen=True, slots=True)
class Found:
    """What was kept of the keys asked for. ``faults`` counts those of which it could not be told; they are misses."""

    scores: Mapping[bytes, float]
    faults: int = 0


class Store(Protocol):
    """Keep finite scores by key for a while. Whatever goes wrong with it, it costs misses and nothing else."""

    async def start(self) -> None:
        """Begin, without waiting for anything."""
        ...

    async def get(self, keys: Sequence[bytes], deadline: Deadline, *, use: bool = True) -> Found:
        """Return what is kept of distinct keys, before the deadline. Never raises but where it is cancelled.

        ``use`` tells whether this is a use, for which something is kept longer than what is not used.
        """
        ...

    def put(self, scores: Mapping[bytes, float]) -> None:
        """Keep scores from now on, or soon. Never waits and never raises."""
        ...

    def told(self) -> Mapping[str, Any]:
        """Return how it stands, as plain data without keys."""
        ...

    async def aclose(self) -> None:
        """Give back what it holds; what waits to be written is written, for a second at most."""
        ...
