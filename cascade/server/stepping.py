"""Step through the load levels of what is served, or keep to the one that an operator pinned."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping
from typing import Any, Final

from cascade.guard.beside import Beside
from cascade.guard.deadline import Clock
from cascade.guard.level_controller import LevelController, LevelRules
from cascade.guard.pressure import Pressure
from cascade.guard.queue_pressure import LevelBound
from cascade.policy.level_bounds import most_pairs
from cascade.policy.levels import at_level, level_named, level_names
from cascade.policy.release import Release
from cascade.stages.base import Stage
from cascade.stages.http import HttpReranker
from cascade.telemetry.level_metrics import LevelMetrics
from cascade.telemetry.logs import note
from cascade.types import LevelReason, StageName

__all__ = ["Stepping", "rules_of", "step_levels", "watch_rooms"]

_LEAST_LOOK_S: Final = 0.05
"""However long requests wait, no look follows another sooner."""
_ALARM: Final = 4.0
"""A wait this many times the target is looked into at once."""
_QUIET_S: Final = 1.0
"""A level that changes again within this time is told of with its next line."""


class Stepping:
    """Say which level decides: the one that is pinned, else that of the release that is followed, else the controller's.

    In mode observe there is one level; what steps there is whether anything is scored beside answers. ``changed`` is
    called with each level that decides from then on, ``soon`` runs a callback once the step that asks for it is over.
    ``metrics`` is None for a release that is not the stable one. ``applied`` is the level that decides, for ``why``;
    ``follower`` goes by it too.
    """

    def __init__(
        self,
        release: Release,
        pressure: Pressure,
        clock: Clock,
        *,
        metrics: LevelMetrics | None,
        jitter: float = 1.0,
        pinned: str | None = None,
        beside: Beside | None = None,
        soon: Callable[[Callable[[], object]], object] = lambda call: asyncio.get_running_loop().call_soon(call),
    ) -> None:
        self.pressure = pressure
        self.changed: Callable[[int], None] = lambda level: None
        self._release = release
        self._clock = clock
        self._metrics = metrics
        self._beside = beside
        self._names = level_names(release)
        self._bounds = _bounds(release, self._names)
        rules = rules_of(release)
        self._most_busy = rules.most_busy
        self._controller = LevelController(self._bounds, rules, jitter=jitter)
        self._pinned = None if pinned is None else level_named(release, pinned).index
        self._since = self._looked = clock()
        self._told = -math.inf
        self._soon = soon
        self._coming = False
        self.applied = 0
        self.why = LevelReason.START
        self.follower: Stepping | None = None
        self._leader: Stepping | None = None
        pressure.alarm(_ALARM * rules.wait_target_ms, self._hurry)
        self.settle()

    def show_in(self, metrics: LevelMetrics | None) -> None:
        """Show the level in these metrics from now on, None for nowhere: they are of the stable release."""
        self._metrics = metrics
        self._show()

    @property
    def level(self) -> int:
        """Return the place of the level that decides, 0 the release as it stands."""
        return min(self.applied, len(self._names) - 1)

    @property
    def is_loaded(self) -> bool:
        """Tell whether there is more load than normal: what nobody waits for is to stop. In mode observe too."""
        return self.applied > 0

    def choose(self) -> int:
        """Return the place of the level that decides one request.

        It is one above where that has room now: what a stage can still do is not left undone. Never where one is
        pinned.
        """
        level = self.level
        if not level or self._pinned is not None:
            return level
        return self.pressure.filling(level, self._bounds, self._most_busy)

    def look(self) -> None:
        """Look at the pressure, and step."""
        now = self._looked = self._clock()
        self._coming = False
        pressure = self.pressure.look()
        if self._is_led:
            self._controller.watch(now, pressure)
        else:
            self._controller.tick(now, pressure)
        self.settle()

    def pin(self, name: str | None) -> None:
        """Keep to a level from now on, or with None step again from the one that decides. Raises ConfigError."""
        if name is None:
            if self._pinned is not None:
                self._controller.go_to(self._pinned, LevelReason.UNPINNED)
                self._pinned = None
                self.settle()
            return
        self._pinned = level_named(self._release, name).index
        self.settle()

    def follow(self, leader: Stepping | None) -> None:
        """Decide by the level of another release from now on, or with None by one's own again, from that level on.

        Both must have the same levels. Two releases in front of the same servers shed the same load: each by itself, one of
        them sheds all of it, and the other looks better, or dearer, than it is.
        """
        if leader is self._leader:
            return
        if self._leader is not None:
            self._leader.follower = None
            self._controller.go_to(self.applied, self.why)
        self._leader = leader
        if leader is not None:
            leader.follower = self
        self.settle()

    def told(self) -> dict[str, Any]:
        """Return what `/status` says: why this level decides and since when, and what stands before the next one up."""
        forecast = None if self._is_led else self._controller.forecast()
        return {
            "why": self.why,
            "since_s": round(self._clock() - self._since, 3),
            "pinned": self._pinned is not None,
            "hold_s": self._controller.hold_s,
            "forecast": None if forecast is None else round(forecast, 3),
            "beside_paused": self._beside is not None and self._beside.paused,
        }

    def _hurry(self) -> None:
        if not self._coming and self._clock() - self._looked >= _LEAST_LOOK_S:
            self._coming = True
            self._soon(self.look)

    @property
    def _is_led(self) -> bool:
        """Tell whether another than the controller says which level decides."""
        return self._pinned is not None or self._leader is not None

    def _said(self) -> tuple[int, LevelReason]:
        if self._pinned is not None:
            return self._pinned, LevelReason.PINNED
        if self._leader is not None:
            return self._leader.applied, self._leader.why
        return self._controller.level, self._controller.why

    def settle(self) -> None:
        """Go by the level that is said by now."""
        before = self.applied
        self.applied, self.why = self._said()
        if self._beside is not None:
            self._beside.paused = self.applied > 0
        self._show()
        if self.applied != before:
            self._step(before)

    def _step(self, before: int) -> None:
        self._since = self._clock()
        self.pressure.now_at(self.applied)
        if self._metrics is not None:
            self._metrics.step(self.why)
        self.changed(self.level)
        self._tell(before, self.applied)
        if self.follower is not None:
            self.follower.settle()

    def _show(self) -> None:
        if self._metrics is None:
            return
        self._metrics.pinned.set(self._pinned is not None)
        if self._beside is not None:
            self._metrics.beside_paused.set(self._beside.paused)

    def _tell(self, before: int, level: int) -> None:
        if len(self._names) == 1 or self._since - self._told < _QUIET_S:
            return
        self._told = self._since
        note(
            "warning" if level > before else "info",
            "load level",
            load_level=self._names[level],
            before=self._names[before],
            why=self.why,
            **({} if self._metrics is not None else {"candidate": self._release.release}),
        )


async def step_levels(stepping: Stepping, seconds: float, count_fault: Callable[[BaseException], None]) -> None:
    """Look again and again, ``seconds`` apart."""
    while True:
        await asyncio.sleep(seconds)
        try:
            stepping.look()
        except Exception as error:  # noqa: BLE001 - the boundary of a background task: it goes on looking
            count_fault(error)


def watch_rooms(pressure: Pressure, stages: Mapping[StageName, Stage]) -> None:
    """Have the bounds and the breakers of servers looked at."""
    for name, stage in stages.items():
        if isinstance(stage, HttpReranker):
            pressure.watch_stage(name, stage.room, stage.breaker)


def rules_of(release: Release) -> LevelRules:
    """Return the numbers that a release is stepped by."""
    said = release.overload
    return LevelRules(
        wait_target_ms=said.target_ms(release.budgets.total_ms),
        interval_s=said.interval_ms / 1000,
        miss_share=said.miss_share,
        hold_s=said.hold_s,
        longest_hold_s=said.longest_hold_s,
        most_busy=said.most_busy,
    )


def _bounds(release: Release, names: tuple[str, ...]) -> list[LevelBound]:
    if release.mode == "observe":  # one level; above it nothing is scored beside the answers
        return [LevelBound(*most_pairs(release))] * 2
    return [LevelBound(*most_pairs(at_level(release, name))) for name in names]
