"""Step through load levels: down as soon as requests wait, up when there is room for what the level above sends.

The rules are those of DAGOR and CoDel (least wait, not mean wait), with a forecast and a back-off for the way up.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from cascade.guard.level_use import LevelUse
from cascade.guard.queue_pressure import LevelBound, QueuePressure, StagePressure
from cascade.types import LevelReason, StageName

__all__ = ["LevelController", "LevelRules"]

_FAR: Final = 4.0
"""Waits this many times the target are answered by two levels at once."""
_QUEUED_INTERVALS: Final = 3
"""A queue that is found standing at this many looks more is one; between two looks it may have been empty."""
_MOST_MISSES: Final = 0.5
"""So are misses of more than this share."""
_LEAST_MISSES: Final = 2
_FULL: Final = 0.98
_FULL_S: Final = 1.0
_LONGEST_LOOK_S: Final = 1.0
"""A look after a longer time than this tells of no more than this: the process was stopped, or its clock jumped."""
_CALM_S: Final = 120.0
_MEMORY_HOLDS: Final = 4.0


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


class LevelController:
    """Say which level decides. Pure: time comes with each look, and ``jitter`` (0.8 to 1.2) tells replicas apart.

    ``bounds`` are the levels, dearest first. Time that runs backwards, or jumps ahead, moves no level: what counts is
    the time between looks, at most a second each.
    """

    def __init__(self, bounds: Sequence[LevelBound], rules: LevelRules, *, jitter: float = 1.0) -> None:
        self._bounds = bounds
        self._rules = rules
        self._jitter = jitter
        self._use = LevelUse(bounds)
        self._looked: float | None = None
        self._now = 0.0
        self._stepped_at = -math.inf
        self._raised_at = -math.inf
        self._clean_since = 0.0
        self._calm_since = 0.0
        self._queue_since = math.inf
        self._full_since = math.inf
        self.level = 0
        self.why = LevelReason.START
        self.hold_s = rules.hold_s

    def tick(self, at: float, pressure: QueuePressure) -> int:
        """Look at ``pressure``, gathered until ``at`` in seconds, and return the level that decides from now on."""
        self.watch(at, pressure)
        why = self._overload(pressure)
        if why is None:
            self._note_above(pressure)
            self._rise_where_clean(pressure)
        else:
            self._note_full(pressure)
            self._sink(why, pressure)
        return self.level

    def watch(self, at: float, pressure: QueuePressure) -> None:
        """Learn from a look without stepping, while another than the controller says which level decides."""
        elapsed_s = 0.0 if self._looked is None else min(max(at - self._looked, 0.0), _LONGEST_LOOK_S)
        self._looked = at
        self._now += elapsed_s
        self._use.learn(elapsed_s, pressure)

    def forecast(self) -> float | None:
        """Return how busy the busier stage would be at the level above, None at the first."""
        if not self.level:
            return None
        return self._use.forecast(self.level - 1, self._now, self.hold_s * _MEMORY_HOLDS)

    def go_to(self, level: int) -> None:
        """Begin anew at a level: one that an operator let go of."""
        self.level, self.why = level, LevelReason.UNPINNED
        self._stepped_at = self._clean_since = self._now

    def _overload(self, pressure: QueuePressure) -> LevelReason | None:
        """Return what tells that there is more work than the level's can be done in time, None where nothing does."""
        rules = self._rules
        uses_large = self._bounds[self.level].large > 0
        queued = pressure.oldest_wait_ms > rules.wait_target_ms
        self._queue_since = min(self._queue_since, self._now) if queued else math.inf
        full = pressure.busy_share >= _FULL
        self._full_since = min(self._full_since, self._now) if full else math.inf
        if pressure.large_breaker_open and uses_large:
            return LevelReason.BREAKER
        if pressure.min_wait_ms is not None and pressure.min_wait_ms > rules.wait_target_ms:
            return LevelReason.WAIT
        intervals = 1 if pressure.oldest_wait_ms > _FAR * rules.wait_target_ms else _QUEUED_INTERVALS
        if self._now - self._queue_since >= intervals * rules.interval_s:
            return LevelReason.QUEUE_AGE
        misses = pressure.predicted_misses
        if misses >= _LEAST_MISSES and misses > rules.miss_share * pressure.judged:
            return LevelReason.MISSES
        if self._now - self._full_since >= _FULL_S:
            return LevelReason.LIMIT
        return None

    def _note_above(self, pressure: QueuePressure) -> None:
        """Begin the hold anew where too many requests that went by the level above ran short of time.

        The stages that it asks for more were full then, however idle their bounds made them look.
        """
        misses = pressure.misses_above
        if not self.level or misses < _LEAST_MISSES or misses <= self._rules.miss_share * pressure.judged_above:
            return
        self._clean_since = self._now
        here, above = self._bounds[self.level], self._bounds[self.level - 1]
        for name in (StageName.SMALL, StageName.LARGE):
            if above.of(name) > here.of(name):
                self._use.is_full(name, self._now)

    def _note_full(self, pressure: QueuePressure) -> None:
        for name, stage in ((StageName.SMALL, pressure.small), (StageName.LARGE, pressure.large)):
            if self._is_full(stage, pressure.judged):
                self._use.is_full(name, self._now)

    def _is_full(self, stage: StagePressure, judged: int) -> bool:
        waits = max(stage.min_wait_ms or 0.0, stage.oldest_wait_ms) > self._rules.wait_target_ms
        late = stage.misses >= _LEAST_MISSES and stage.misses > self._rules.miss_share * judged
        return waits or late or (stage.busy_share or 0.0) >= _FULL

    def _sink(self, why: LevelReason, pressure: QueuePressure) -> None:
        if self._now - self._raised_at <= self._rules.failed_within_s:
            self.hold_s = min(self._rules.longest_hold_s, self.hold_s * 2)
            self._raised_at = -math.inf
        self._clean_since = self._calm_since = self._now
        last = len(self._bounds) - 1
        if why is LevelReason.BREAKER:
            without = (index for index, bound in enumerate(self._bounds) if not bound.large)
            self._move(next(without, last), why)
            return
        if self.level == last or self._now - self._stepped_at < self._rules.interval_s:
            return
        far = self._is_far(why, pressure)
        self._move(min(last, self.level + (2 if far else 1)), why)

    def _is_far(self, why: LevelReason, pressure: QueuePressure) -> bool:
        if why is LevelReason.MISSES:
            return pressure.predicted_misses > _MOST_MISSES * pressure.judged
        wait_ms = max(pressure.min_wait_ms or 0.0, pressure.oldest_wait_ms)
        return why is not LevelReason.LIMIT and wait_ms > _FAR * self._rules.wait_target_ms

    def _rise_where_clean(self, pressure: QueuePressure) -> None:
        if self._now - self._calm_since >= _CALM_S:
            self.hold_s = self._rules.hold_s
        if not self.level or self._now - self._clean_since < self.hold_s * self._jitter:
            return
        above = self.level - 1
        if pressure.large_breaker_open and self._bounds[above].large > 0:
            return
        if self._use.forecast(above, self._now, self.hold_s * _MEMORY_HOLDS) >= self._rules.most_busy:
            return
        self._move(above, LevelReason.ROOM)
        self._raised_at = self._clean_since = self._now

    def _move(self, level: int, why: LevelReason) -> None:
        if level != self.level:
            self.level, self.why = level, why
            self._stepped_at = self._now
            self._queue_since = self._full_since = math.inf
