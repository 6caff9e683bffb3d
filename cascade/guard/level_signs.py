"""Read in a look what tells of more work than can be done in time, and which stage it presses."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, NamedTuple

from cascade.guard.queue_pressure import QueuePressure, StagePressure
from cascade.types import LevelReason, StageName

__all__ = ["LevelRules", "LevelSigns", "Sign"]

_FAR: Final = 4.0
"""Waits this many times the target are answered by two levels at once."""
_MOST_MISSES: Final = 0.5
"""So are misses of more than this share."""
_QUEUED_INTERVALS: Final = 3
"""A queue that is found standing at this many looks more is one; between two looks it may have been empty."""
_LEAST_MISSES: Final = 2
_FULL: Final = 0.98
_FULL_S: Final = 1.0
_ORDER: Final = (LevelReason.WAIT, LevelReason.QUEUE_AGE, LevelReason.MISSES, LevelReason.LIMIT)


@dataclass(frozen=True, slots=True)
class LevelRules:
    """The numbers that levels are stepped by."""

    wait_target_ms: float = 9.0
    interval_s: float = 0.25
    miss_share: float = 0.05
    hold_s: float = 5.0
    longest_hold_s: float = 60.0
    most_busy: float = 0.7
    failed_within_s: float = 10.0


class Sign(NamedTuple):
    """What there is too much of: at which stages, none of them where it is before both, and whether it is far off."""

    why: LevelReason
    stages: tuple[StageName, ...] = ()
    far: bool = False


@dataclass(slots=True)
class _Since:
    """Since when somebody has waited too long at a place, and since when it has been full."""

    queued: float = math.inf
    full: float = math.inf


class LevelSigns:
    """Keep what is to last for a while before it counts.

    A stage whose breaker is not closed presses nobody: what failed there, or waited before it, says nothing of load, and
    asking it for less would change nothing. What is pressed before both, at admission, is put down to a
    stage where one is pressed too.
    """

    def __init__(self, rules: LevelRules) -> None:
        self._rules = rules
        self._since: dict[StageName | None, _Since] = {}
        self.begin()

    def begin(self) -> None:
        """Forget how long anything has lasted: another level decides."""
        self._since = {None: _Since(), StageName.SMALL: _Since(), StageName.LARGE: _Since()}

    def read(self, now: float, pressure: QueuePressure) -> Sign | None:
        """Return what tells of overload at a look, None where nothing does."""
        asked = tuple((name, stage) for name, stage in pressure.stages if not stage.is_shut)
        late = self._late(pressure, asked)
        found: dict[StageName | None, LevelReason | None] = {}
        found[None] = self._waiting(None, now, pressure.admission_wait_ms or 0.0, pressure.queue_ms)
        worst_ms = max(pressure.admission_wait_ms or 0.0, pressure.queue_ms)
        for name, stage in asked:
            least_ms, oldest_ms = stage.min_wait_ms or 0.0, stage.oldest_wait_ms
            waiting = self._waiting(name, now, least_ms, oldest_ms)
            full = self._is_full_for_long(name, now, stage)
            found[name] = waiting or (LevelReason.MISSES if name in late else LevelReason.LIMIT if full else None)
            worst_ms = max(worst_ms, least_ms, oldest_ms)
        if None in late:
            found[None] = found[None] or LevelReason.MISSES
        whys = [why for why in found.values() if why is not None]
        if not whys:
            return None
        why = min(whys, key=_ORDER.index)
        stages = tuple(name for name, each in found.items() if name is not None and each is not None)
        return Sign(why, stages, self._is_far(why, worst_ms, pressure))

    def is_late(self, misses: int, judged: int) -> bool:
        """Tell whether more of those judged missed than may: two at least."""
        return misses >= _LEAST_MISSES and misses > self._rules.miss_share * judged

    def is_full(self, stage: StagePressure, judged: int) -> bool:
        """Tell whether a stage had all it can do."""
        waits = max(stage.min_wait_ms or 0.0, stage.oldest_wait_ms) > self._rules.wait_target_ms
        return waits or self.is_late(stage.misses, judged) or (stage.busy_share or 0.0) >= _FULL

    def _waiting(self, place: StageName | None, now: float, least_ms: float, oldest_ms: float) -> LevelReason | None:
        target_ms, since = self._rules.wait_target_ms, self._since[place]
        since.queued = min(since.queued, now) if oldest_ms > target_ms else math.inf
        if least_ms > target_ms:
            return LevelReason.WAIT
        intervals = 1 if oldest_ms > _FAR * target_ms else _QUEUED_INTERVALS
        return LevelReason.QUEUE_AGE if now - since.queued >= intervals * self._rules.interval_s else None

    def _is_full_for_long(self, name: StageName, now: float, stage: StagePressure) -> bool:
        since = self._since[name]
        since.full = min(since.full, now) if (stage.busy_share or 0.0) >= _FULL else math.inf
        return now - since.full >= _FULL_S

    def _late(
        self, pressure: QueuePressure, asked: tuple[tuple[StageName, StagePressure], ...]
    ) -> set[StageName | None]:
        """Return where requests ran short of time, None for no stage; nowhere where they were few in all."""
        misses = _misses(pressure)
        if not self.is_late(misses, pressure.judged):
            return set()
        late: set[StageName | None] = {name for name, stage in asked if self.is_late(stage.misses, pressure.judged)}
        if late:
            return late
        of_stages = sum(stage.misses for _, stage in asked)
        return {name for name, stage in asked if stage.misses} if of_stages * 2 > misses else {None}

    def _is_far(self, why: LevelReason, worst_ms: float, pressure: QueuePressure) -> bool:
        if why is LevelReason.MISSES:
            return _misses(pressure) > _MOST_MISSES * pressure.judged
        return why is not LevelReason.LIMIT and worst_ms > _FAR * self._rules.wait_target_ms


def _misses(pressure: QueuePressure) -> int:
    """Return the misses, those left out that a stage caused whose breaker is not closed."""
    return max(0, pressure.predicted_misses - sum(stage.misses for _, stage in pressure.stages if stage.is_shut))
