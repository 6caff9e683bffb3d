"""Gather what tells of overload, for the controller of load levels to look at now and then."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from cascade.decision import Decision, DegradedReason
from cascade.guard.queue_pressure import Gate, LevelBound, LevelWork, QueuePressure, Room, StagePressure
from cascade.types import SCORING, BreakerState, StageName

__all__ = ["Pressure"]

_MISSES: Final = frozenset(
    {DegradedReason.STAGE_TIMEOUT, DegradedReason.STAGE_OVERLOADED, DegradedReason.DEADLINE_TOO_SHORT}
)
"""What load does to an answer; a server that is away or answers rubbish is no reason to ask it for less."""
_AS_PLANNED: Final = frozenset({DegradedReason.LOAD_LEVEL, DegradedReason.CALIBRATION_MISMATCH})
"""Reasons that leave a request's work what its level plans."""
_ADMISSION: Final = "admission"
_NOTHING: Final = LevelBound(0, 0)
_ENOUGH_WAITS: Final = 8
_ENOUGH_ARRIVALS: Final = 20
_NO_FILLING_S: Final = 1.0
"""A request that went by a level above and ran short of time at a stage keeps others from asking more of that stage than
their level does for so long."""
_DRAINS: Final = 4.0
"""One that waited long there keeps them from it for so many times its wait at most: a queue that nothing is added to is
gone in once that time, and one of a stage that is three quarters busy otherwise in four times."""
_LONGEST_S: Final = 2.0
"""A window closes at a look once it holds enough to be judged by, or is this old: a wait or two prove nothing."""


@dataclass(slots=True)
class _Waits:
    """The waits at one place since its window opened."""

    since: float
    count: int = 0
    least_ms: float = 0.0

    def add(self, wait_ms: float) -> None:
        self.least_ms = wait_ms if not self.count else min(self.least_ms, wait_ms)
        self.count += 1

    def close(self, now: float) -> float | None:
        """Return the least wait and begin anew, or None where too few are told of."""
        age = now - self.since
        if self.count < _ENOUGH_WAITS and 0 <= age < _LONGEST_S:
            return None
        least = self.least_ms if self.count > 1 else None
        self.since, self.count = now, 0
        return least


@dataclass(slots=True)
class _Stage:
    """What is known of one stage."""

    room: Room | None = None
    gate: Gate | None = None
    scored: int = 0
    misses: int = 0


class Pressure:
    """Take in what happens to requests, at a few hundred nanoseconds each; one event loop, so no locks.

    ``arrived`` and ``answered`` come from the pipeline, ``waited`` from a queue in front of it. Evidence is of the
    level of the moment only: what an earlier level began is not counted against it. What went by a level above,
    where there seemed to be room, is counted apart: a bound above what a server can do in time makes it look idle.
    ``least_deadline_ms`` leaves callers in more of a hurry than the release out of the misses: that they run short is
    not load's doing.
    """

    def __init__(self, clock: Callable[[], float], *, least_deadline_ms: float = 0.0) -> None:
        self._clock = clock
        self._least_deadline_ms = least_deadline_ms
        self._level = 0
        self._stages = {name: _Stage() for name in SCORING}
        self._oldest: Callable[[], float] = lambda: 0.0
        self._alarm_ms = self._most_wait_above_ms = float("inf")
        self._alarm: Callable[[], None] = lambda: None
        self._arrivals = 0
        self._under_way: dict[int, int] = {}
        self._work: dict[int, list[int]] = {}
        self._waits: dict[str, _Waits] = {}
        self._judged_since = clock()
        self._judged = 0
        self._misses = 0
        self._judged_above = 0
        self._misses_above = 0
        self._no_filling_until = dict.fromkeys(SCORING, -math.inf)

    def watch_stage(self, name: StageName, room: Room | None = None, gate: Gate | None = None) -> None:
        """Read the bound of a stage, and whether its breaker is open, at each look."""
        self._stages[name].room = room
        self._stages[name].gate = gate

    def watch_queue(self, oldest_wait_ms: Callable[[], float]) -> None:
        """Read at each look how long the request at the head of a queue has waited."""
        self._oldest = oldest_wait_ms

    def alarm(self, wait_ms: float, call: Callable[[], None]) -> None:
        """Have ``call`` made when something waited longer than ``wait_ms``: a look that cannot wait."""
        self._alarm_ms, self._alarm = wait_ms, call
        self._most_wait_above_ms = wait_ms / 2

    def arrived(self, level: int) -> None:
        """Count a request that came, and that ``level`` decides."""
        self._arrivals += 1
        self._under_way[level] = self._under_way.get(level, 0) + 1

    def left(self, level: int) -> None:
        """Count a request of ``level`` as ended, however it did."""
        self._under_way[level] -= 1

    def filling(self, level: int, bounds: Sequence[LevelBound], most_busy: float) -> int:
        """Return the level that decides one request while ``level`` is the level of the moment; ``bounds`` are of all.

        That is the one above where it has room. Where the one above asks no more of the large stage, it is the nearest
        that does and asks no more of the small one, where that has room: a small stage at its edge leaves nothing
        of the large one undone, and none of its own work is given up for it. One that lets nothing through gives up none.
        """
        here, above = bounds[level], level - 1
        if above < 0 or not self.has_room(above, bounds[above], most_busy, here=here):
            return level
        if bounds[above].large > here.large:
            return above
        further = next((each for each in range(above - 1, -1, -1) if bounds[each].large > here.large), None)
        shut = _refuses(self._stages[StageName.SMALL])
        if further is None or (bounds[further].small > bounds[above].small and not shut):
            return above
        return further if self.has_room(further, bounds[further], most_busy, here=here) else above

    def has_room(self, level: int, bound: LevelBound, most_busy: float, *, here: LevelBound = _NOTHING) -> bool:
        """Tell whether each stage that ``level`` asks has room for one more request of it, now.

        What requests of that level have yet to send to the large stage counts as sent: they are at the small one before.
        A stage without a bound has no room that is known. One that is asked for more than ``here``, what the level of the
        moment asks, has none for a while after a request by a level above waited long or ran short of time there.
        """
        now = self._clock()
        coming = self._under_way.get(level, 0)
        for name, stage in self._stages.items():
            need = bound.of(name)
            shut = _refuses(stage)
            if not need or (shut and name is StageName.SMALL):  # the large one answers without it
                continue
            if need > here.of(name) and 0 < self._no_filling_until[name] - now <= _NO_FILLING_S:
                return False
            room = stage.room
            if room is None or shut:
                return False
            usable = room.limit * most_busy
            taken = max(room.in_flight, coming * need) if name is StageName.LARGE else room.in_flight
            if taken + min(need, usable) > usable:
                return False
        return True

    def waited(self, wait_ms: float, place: str = _ADMISSION) -> None:
        """Tell how long something waited for its turn, 0 where it did not have to."""
        waits = self._waits.get(place)
        if waits is None:
            waits = self._waits[place] = _Waits(self._clock())
        waits.add(wait_ms)
        if wait_ms > self._alarm_ms:
            self._alarm()

    def missed(self, stage: StageName | None = None) -> None:
        """Count a request that has no time for what its level plans, for the sake of ``stage`` where that is known."""
        self._misses += 1
        if stage is not None:
            self._stages[stage].misses += 1

    def answered(self, decision: Decision, *, admitted: bool = True) -> None:
        """Take in an answered request: its waits, its work, and whether time was too short for it.

        One that was not ``admitted`` was answered without its turn: a miss, and no work of its level.
        """
        level = decision.level.index
        current = level == self._level
        pairs = {StageName.SMALL: 0, StageName.LARGE: 0}
        late: StageName | None = None
        for item in decision.rounds:
            if item.cost is not None and not item.left:
                continue  # a cache answered: the stage's queue was not met
            if item.cost is not None:
                self._stages[item.stage].scored += item.pairs
                pairs[item.stage] += item.pairs
                wait_ms = (item.cost.room_ms or 0.0) + (item.cost.queue_ms or 0.0)
                if current:
                    self.waited(wait_ms, item.stage)
                elif level < self._level and wait_ms > self._most_wait_above_ms:
                    self._keep_off(item.stage, min(_NO_FILLING_S, _DRAINS * wait_ms / 1000))
            elif item.outcome in _MISSES:
                late = late or item.stage  # the first took the time of those that followed
        if decision.deadline_ms >= self._least_deadline_ms:
            short = late is not None or not admitted or not _MISSES.isdisjoint(decision.degraded)
            self._judge(level, late, short=short)
        if not admitted:
            return
        if not decision.degraded or _AS_PLANNED.issuperset(decision.degraded):
            work = self._work.setdefault(level, [0, 0, 0])
            work[0] += 1
            work[1] += pairs[StageName.SMALL]
            work[2] += pairs[StageName.LARGE]

    def _judge(self, level: int, stage: StageName | None, *, short: bool) -> None:
        """Count a request as judged by its level, and whether it ran ``short`` of time, for the sake of ``stage``."""
        if level == self._level:
            self._judged += 1
            if short:
                self.missed(stage)
            return
        if level == self._level - 1:
            self._judged_above += 1
            self._misses_above += short
        if level < self._level and short:
            for name in SCORING if stage is None else (stage,):
                self._keep_off(name, _NO_FILLING_S)

    def _keep_off(self, stage: StageName, seconds: float) -> None:
        until, now = self._no_filling_until[stage], self._clock()
        at_least = until if until - now <= _NO_FILLING_S else -math.inf  # beyond that the clock went back
        self._no_filling_until[stage] = max(at_least, now + seconds)

    def now_at(self, level: int) -> None:
        """Begin anew with what tells of a level: from now on ``level`` decides."""
        if level == self._level:
            return
        self._level = level
        self._waits.clear()
        self._judged_since, self._judged, self._misses = self._clock(), 0, 0
        self._judged_above = self._misses_above = 0
        for stage in self._stages.values():
            stage.misses = 0

    def look(self) -> QueuePressure:
        """Return what there is since the last look. Where there is too little to judge by, it is kept for the next."""
        now = self._clock()
        least = {place: waits.close(now) for place, waits in self._waits.items()}
        judged, misses = self._judged, self._misses
        judged_above, misses_above = self._judged_above, self._misses_above
        if judged >= _ENOUGH_ARRIVALS or not 0 <= now - self._judged_since < _LONGEST_S:
            self._judged_since, self._judged, self._misses = now, 0, 0
            self._judged_above = self._misses_above = 0
        else:
            judged = misses = judged_above = misses_above = 0
        told = QueuePressure(
            arrivals=self._arrivals,
            judged=judged,
            predicted_misses=misses,
            judged_above=judged_above,
            misses_above=misses_above,
            admission_wait_ms=least.get(_ADMISSION),
            queue_ms=self._oldest(),
            small=self._of_stage(StageName.SMALL, least, closed=judged > 0),
            large=self._of_stage(StageName.LARGE, least, closed=judged > 0),
            work={level: LevelWork(*counts) for level, counts in self._work.items()},
        )
        self._arrivals = 0
        self._work.clear()
        return told

    def _of_stage(self, name: StageName, least: Mapping[str, float | None], *, closed: bool) -> StagePressure:
        stage = self._stages[name]
        room = stage.room
        told = StagePressure(
            scored=stage.scored,
            in_flight=0 if room is None else room.in_flight,
            limit=0 if room is None else room.limit,
            min_wait_ms=least.get(name),
            oldest_wait_ms=0.0 if room is None else room.oldest_wait_ms,
            misses=stage.misses if closed else 0,
            breaker_open=stage.gate is not None and stage.gate.is_open,  # half open, probes are under way: no sign
            breaker_closed=stage.gate is None or stage.gate.state is BreakerState.CLOSED,
        )
        stage.scored = 0
        if closed:
            stage.misses = 0
        return told


def _refuses(stage: _Stage) -> bool:
    return stage.gate is not None and stage.gate.refuses
