"""Step through load levels: down as soon as requests wait, up when there is room for what the level above sends.

The rules are those of DAGOR and CoDel (least wait, not mean wait), with a forecast and a back-off for the way up.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from cascade.guard.level_signs import LevelRules, LevelSigns, Sign
from cascade.guard.level_use import LevelUse
from cascade.guard.queue_pressure import LevelBound, QueuePressure
from cascade.types import SCORING, LevelReason, StageName

__all__ = ["LevelController", "LevelRules"]

_LONGEST_LOOK_S: Final = 1.0
"""A look after a longer time than this tells of no more than this: the process was stopped, or its clock jumped."""
_CALM_S: Final = 120.0
_MEMORY_HOLDS: Final = 4.0
_PLACES: Final = (None, *SCORING)


class LevelController:
    """Say which level decides. Pure: time comes with each look, and ``jitter`` (0.8 to 1.2) tells replicas apart.

    ``bounds`` are the levels, dearest first. Time that runs backwards, or jumps ahead, moves no level: what counts is
    the time between looks, at most a second each.

    A step down helps only where the level below asks less of what is pressed. So each has a floor: the level that was
    stepped to for the small stage, for the large one, or for no stage (None), and the lowest of them decides. A step for a
    stage goes to the first level that asks less of it. While the breaker of the small stage is not closed nobody asks it:
    its floor is lifted, and so is what was stepped for no stage shortly before, since requests had waited on it.
    """

    def __init__(self, bounds: Sequence[LevelBound], rules: LevelRules, *, jitter: float = 1.0) -> None:
        self._bounds = bounds
        self._rules = rules
        self._jitter = jitter
        self._use = LevelUse(bounds)
        self._signs = LevelSigns(rules)
        self._floors: dict[StageName | None, int] = dict.fromkeys(_PLACES, 0)
        self._of_no_stage_at = -math.inf
        self._small_is_shut = False
        self._looked: float | None = None
        self._now = 0.0
        self._stepped_at = -math.inf
        self._raised_at = -math.inf
        self._clean_since = 0.0
        self._calm_since = 0.0
        self.level = 0
        self.why = LevelReason.START
        self.hold_s = rules.hold_s

    def tick(self, at: float, pressure: QueuePressure) -> int:
        """Look at ``pressure``, gathered until ``at`` in seconds, and return the level that decides from now on."""
        was_shut = self._small_is_shut
        self.watch(at, pressure)
        if self._small_is_shut:
            self._take_back(opens=not was_shut)
        sign = self._overload(pressure)
        if sign is None:
            self._note_above(pressure)
            self._rise_where_clean(pressure)
        else:
            self._note_full(pressure)
            self._sink(sign)
        return self.level

    def watch(self, at: float, pressure: QueuePressure) -> None:
        """Learn from a look without stepping, while another than the controller says which level decides."""
        elapsed_s = 0.0 if self._looked is None else min(max(at - self._looked, 0.0), _LONGEST_LOOK_S)
        self._looked = at
        self._now += elapsed_s
        self._use.learn(elapsed_s, pressure)
        self._small_is_shut = pressure.small.is_shut
        if self._small_is_shut:
            self._use.forget(StageName.SMALL)

    def forecast(self) -> float | None:
        """Return how busy the busier stage would be at the level above, None at the first."""
        if not self.level:
            return None
        return self._use.forecast(self.level - 1, self._now, self.hold_s * _MEMORY_HOLDS)

    def go_to(self, level: int, why: LevelReason) -> None:
        """Begin anew at a level: one that an operator let go of, or that another release had stepped to."""
        self.level, self.why = level, why
        self._floors = {**dict.fromkeys(_PLACES, 0), None: level}
        self._of_no_stage_at = -math.inf
        self._signs.begin()
        self._stepped_at = self._clean_since = self._now

    def _take_back(self, *, opens: bool) -> None:
        """Lift what the small stage was stepped down for: nobody asks it now, whatever the level."""
        self._floors[StageName.SMALL] = 0
        if opens and self._now - self._of_no_stage_at <= self._rules.failed_within_s:
            self._floors[None] = 0
        self._move(min(self.level, max(self._floors.values())), LevelReason.BREAKER)

    def _overload(self, pressure: QueuePressure) -> Sign | None:
        """Return what tells that there is more work than the level's can be done in time, None where nothing does."""
        sign = self._signs.read(self._now, pressure)
        if pressure.large_breaker_open and self._bounds[self.level].large > 0:
            return Sign(LevelReason.BREAKER, (StageName.LARGE,))
        return sign

    def _note_above(self, pressure: QueuePressure) -> None:
        """Begin the hold anew where too many requests that went by the level above ran short of time.

        The stages that it asks for more were full then, however idle their bounds made them look.
        """
        if not self.level or not self._signs.is_late(pressure.misses_above, pressure.judged_above):
            return
        self._clean_since = self._now
        here, above = self._bounds[self.level], self._bounds[self.level - 1]
        for name in SCORING:
            if above.of(name) > here.of(name):
                self._use.is_full(name, self._now)

    def _note_full(self, pressure: QueuePressure) -> None:
        for name, stage in pressure.stages:
            if not stage.is_shut and self._signs.is_full(stage, pressure.judged):
                self._use.is_full(name, self._now)

    def _sink(self, sign: Sign) -> None:
        if self._now - self._raised_at <= self._rules.failed_within_s:
            self.hold_s = min(self._rules.longest_hold_s, self.hold_s * 2)
            self._raised_at = -math.inf
        self._clean_since = self._calm_since = self._now
        if sign.why is LevelReason.BREAKER:
            without = (index for index, bound in enumerate(self._bounds) if not bound.large)
            self._step_down(next(without, len(self._bounds) - 1), sign)
        elif self._now - self._stepped_at >= self._rules.interval_s:
            level, last = self._below(self.level, sign.stages), len(self._bounds) - 1
            if sign.far and level > self.level:
                level = max(level, min(last, self.level + 2))
            self._step_down(level, sign)

    def _below(self, level: int, stages: Sequence[StageName]) -> int:
        """Return the first level below that asks less of a stage that is pressed, the same one where none does.

        Where no stage is told of, or two levels ask alike and differ in what bounds do not tell, that is the next.
        """
        here = self._bounds[level]
        for index in range(level + 1, len(self._bounds)):
            bound = self._bounds[index]
            if not stages or bound == here or any(bound.of(name) < here.of(name) for name in stages):
                return index
        return level

    def _step_down(self, level: int, sign: Sign) -> None:
        if level == self.level:
            return
        for place in sign.stages or (None,):
            self._floors[place] = level
        if not sign.stages:
            self._of_no_stage_at = self._now
        self._move(level, sign.why)

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
        self._floors = {place: min(floor, above) for place, floor in self._floors.items()}
        self._move(above, LevelReason.ROOM)
        self._raised_at = self._clean_since = self._now

    def _move(self, level: int, why: LevelReason) -> None:
        if level != self.level:
            self.level, self.why = level, why
            self._stepped_at = self._now
            self._signs.begin()
