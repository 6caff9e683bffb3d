"""Score a pair once where several requests ask for it at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence

from cascade.types import Exclusion

__all__ = ["Flight", "Flights", "Outcome"]

Outcome = float | Exclusion
"""What became of a document: its score, or why it was left out."""


class Flight:
    """Pairs that a round under way scores, which has ended at ``until``, by the clock of deadlines, however it does.

    ``outcomes`` is None until it counts for others, and for ever where it does not.
    """

    __slots__ = ("_ended", "outcomes", "until")

    def __init__(self, until: float) -> None:
        self.until = until
        self.outcomes: Mapping[bytes, Outcome] | None = None
        self._ended = asyncio.Event()

    async def ended(self) -> None:
        """Wait until the round has ended, however it did."""
        await self._ended.wait()

    def end(self, outcomes: Mapping[bytes, Outcome] | None) -> None:
        """Let those go on who wait."""
        self.outcomes = outcomes
        self._ended.set()


class Flights:
    """Know which pairs are being scored, of all requests of the process."""

    def __init__(self) -> None:
        self._under_way: dict[bytes, Flight] = {}

    def __len__(self) -> int:
        return len(self._under_way)

    def following(self, keys: Iterable[bytes], until: float) -> dict[bytes, Flight]:
        """Return the flight of each key that has one which has ended at ``until``.

        One that may take longer is not for whom has less time: it may be larger, and in no hurry.
        """
        under_way = self._under_way
        return {key: under_way[key] for key in keys if key in under_way and under_way[key].until <= until}

    def begin(self, keys: Sequence[bytes], until: float) -> Flight:
        """Begin a flight of keys; who begins it calls `end`. A key that another has is of the one that ends sooner."""
        flight = Flight(until)
        for key in keys:
            other = self._under_way.get(key)
            if other is None or until < other.until:
                self._under_way[key] = flight
        return flight

    def end(self, flight: Flight, keys: Sequence[bytes], outcomes: Mapping[bytes, Outcome] | None) -> None:
        """End a flight of keys, whatever came of it."""
        for key in keys:
            if self._under_way.get(key) is flight:
                del self._under_way[key]
        flight.end(outcomes)
