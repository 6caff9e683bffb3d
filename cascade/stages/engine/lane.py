"""The queue of one model: deadline first, in batches of about one length. No threads, no clock: both are the workers'."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Any, Final

from cascade.errors import NO_TIME, StageTimeout
from cascade.stages.engine.batching import Batching, bucket_of
from cascade.stages.engine.round import NotRun, Round, Unit

__all__ = ["Lane", "Urgency"]

Urgency = tuple[bool, float, bool]
"""What is run first is what is smallest: nobody waits for it, its deadline, and whether it comes second at that."""
_Entry = tuple[tuple[bool, float], int, int, Unit]
_SLACK: Final = 2.0
"""A pair waits for others only while its deadline leaves time for so many calls as they last took."""
_MOST_OVER: Final = 1024
"""What is queued of rounds that are over is swept out once it is more than this, and more than what waits."""
_NEWEST: Final = 0.2
"""What the newest call weighs in how long calls take."""
_AT_LEAST: Final = 0.8
"""What is left of a round takes no less than this share of what so many tokens took of late."""
_HOPE: Final = 0.95
"""How much less tokens are taken to take after each round dropped for want of time, until calls tell again: where none is
made, no call would."""


class Lane:
    """What waits for one model. The workers call it under their lock.

    Texts are read and inputs run by the urgency of their round: those that somebody waits for before those that nobody
    does, and in no batch with them, then by deadline, then the longest first, so that threads end together. What is past
    its deadline, or whose round is over, is dropped when its turn comes. Unless it ``keeps_parts``,
    so that results are of use though their round is never whole, a round is read before it is run, and ends at once where
    what has been read of it cannot be run by its deadline, on all ``threads``, as fast as tokens were run of late. ``run``
    does what `take` returned, without the lock.
    """

    def __init__(
        self,
        batching: Batching,
        run: Callable[[Sequence[Unit]], None],
        *,
        threads: int = 1,
        keeps_parts: bool = False,
        settle: Callable[[Round[Any]], None] = lambda round_: None,
    ) -> None:
        self.batching = batching
        self.run = run
        self.rounds: set[Round[Any]] = set()
        self.waiting = 0
        self.running = 0
        self.closed = False
        self._threads = threads
        self._keeps_parts = keeps_parts
        self._settle = settle
        self._unread: list[_Entry] = []
        self._ready: dict[int, list[_Entry]] = {}
        self._turns = count()
        self._over = 0
        self._call_s = 0.0
        self._spent_s = self._spent_tokens = 0.0

    def enter(self, round_: Round[Any], now: float) -> None:
        """Queue all texts of a round."""
        round_.submitted = now
        self.rounds.add(round_)
        self.waiting += round_.waiting
        for position, text in enumerate(round_.texts):
            heappush(self._unread, (round_.urgency, -len(text), next(self._turns), Unit(round_, position, now)))

    def ready(self, units: Iterable[Unit]) -> None:
        """Queue the inputs of a text that was read. Those beyond the first are pairs more that wait."""
        for unit in units:
            if unit.round.over:
                return
            unit.round.waiting += 1
            unit.round.tokens_left += unit.size
            self.waiting += 1
            bucket = 0 if self.batching.is_one_pair else bucket_of(unit.size)
            entry = (unit.round.urgency, -unit.size, next(self._turns), unit)
            heappush(self._ready.setdefault(bucket, []), entry)

    def leave(self, round_: Round[Any]) -> None:
        """Count nothing of a round, which is over, as waiting any more."""
        if round_ in self.rounds:
            self.rounds.remove(round_)
            self.waiting -= round_.waiting
            self._over += round_.waiting
            round_.waiting = 0
            if self._over > max(self.waiting, _MOST_OVER):
                self._sweep()

    def most_urgent(self, now: float) -> Urgency | None:
        """Return the urgency of what `take` would give, None where nothing is to be done now."""
        found = [urgency for urgency, _ in self._choices(now)]
        return min(found, default=None)

    def take(self, now: float) -> list[Unit]:
        """Give the most urgent: one text to be read, or inputs for one call; nothing where its time has just run out."""
        choices = self._choices(now)
        if not choices:
            return []
        _, bucket = min(choices)
        heap = self._unread if bucket < 0 else self._ready[bucket]
        units: list[Unit] = []
        longest = 0
        while (first := self._first(heap)) is not None:
            unit = first[-1]
            longest = max(longest, unit.size)
            if units and not self._joins(units, unit, longest):
                break
            heappop(heap)
            units.append(self._started(unit))
        return units

    def ripens_at(self, now: float) -> float:
        """Return when the next batch that waits for others will be run all the same, infinity where none waits."""
        found = [self._ripe_at(heap, now) for heap in self._ready.values() if self._first(heap) is not None]
        return min(found, default=math.inf)

    def ran(self, seconds: float, tokens: int) -> None:
        """Note how long a call of so many tokens took."""
        self._spent_s = (1 - _NEWEST) * self._spent_s + seconds
        self._spent_tokens = (1 - _NEWEST) * self._spent_tokens + tokens
        self._call_s = seconds if not self._call_s else (1 - _NEWEST) * self._call_s + _NEWEST * seconds

    def oldest_wait_s(self, now: float) -> float:
        """Return how long the round that came first of those with work waiting has been here, 0 where none waits."""
        return max((now - each.submitted for each in self.rounds if each.waiting), default=0.0)

    def _choices(self, now: float) -> list[tuple[Urgency, int]]:
        """Return the urgency of the first unread text, its bucket -1, and of the first input of each ripe bucket."""
        reading_waits = self._keeps_parts
        found: list[tuple[Urgency, int]] = []
        if (unread := self._first(self._unread)) is not None:
            found.append(((*unread[0], reading_waits), -1))
        for bucket, heap in self._ready.items():
            if (first := self._first(heap)) is not None and self._ripe_at(heap, now) <= now:
                found.append(((*first[0], not reading_waits), bucket))
        return found

    def _ripe_at(self, heap: Sequence[_Entry], now: float) -> float:
        """Return when a bucket that is not empty is run: at once where a batch is full, or time is short."""
        wait_s = self.batching.max_wait_ms / 1000
        if not wait_s or len(heap) >= self.batching.max_pairs:
            return now
        longest = -min(entry[1] for entry in heap)
        if not self.batching.takes(len(heap) + 1, longest):
            return now
        oldest = min(entry[-1].since for entry in heap)
        left_s = heap[0][-1].round.deadline.remaining_ms() / 1000
        return min(oldest + wait_s, now + left_s - _SLACK * self._call_s)

    def _first(self, heap: list[_Entry]) -> _Entry | None:
        """Return the first entry that is still to be done, and drop those before it."""
        while heap:
            round_ = heap[0][-1].round
            if not round_.over and (fault := self._lacks_time(round_)) is not None:
                round_.end(fault)
                self._settle(round_)
                self.leave(round_)
            elif not round_.over:
                return heap[0]
            else:
                heappop(heap)
                self._over -= 1
        return None

    def _lacks_time(self, round_: Round[Any]) -> NotRun | None:
        """Return what a round fails by that is past its deadline, or will be before it can be whole."""
        left_s = round_.deadline.remaining_ms() / 1000
        if left_s <= 0:
            return NotRun(StageTimeout, "deadline")
        token_s = self._spent_s / self._spent_tokens if self._spent_tokens else 0.0
        if self._keeps_parts or _AT_LEAST * round_.tokens_left * token_s / self._threads <= left_s:
            return None
        self._spent_s *= _HOPE
        return NotRun(StageTimeout, NO_TIME)

    def _sweep(self) -> None:
        """Take out what is queued of rounds that are over: behind more urgent work its turn may never come."""
        self._over = 0
        for heap in (self._unread, *self._ready.values()):
            heap[:] = [entry for entry in heap if not entry[-1].round.over]
            heapify(heap)

    def _joins(self, units: Sequence[Unit], unit: Unit, longest: int) -> bool:
        """Tell whether an input goes into a call with others."""
        is_aside, joins_aside = units[0].round.urgency[0], unit.round.urgency[0]
        return unit.tokens is not None and joins_aside == is_aside and self.batching.takes(len(units) + 1, longest)

    def _started(self, unit: Unit) -> Unit:
        if unit.tokens is not None:
            unit.round.begun.add(unit.position)
        unit.round.tokens_left -= unit.size
        unit.round.waiting -= 1
        self.waiting -= 1
        self.running += 1
        return unit
