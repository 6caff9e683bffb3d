"""The controller of load levels and the breaker of the large stage together: probes do not undo the step that brought them."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from cascade.guard.breaker import Breaker, Outcome
from cascade.guard.level_controller import LevelController, LevelRules
from cascade.guard.pressure import Pressure
from cascade.guard.queue_pressure import LevelBound
from cascade.policy.stage_specs import BreakerRules
from cascade.types import BreakerState, StageName

_BOUNDS = (LevelBound(50, 20), LevelBound(50, 0), LevelBound(0, 0))
_STEP_S, _FAILS_FROM, _WELL_FROM, _SECONDS = 0.05, 5.0, 10.0, 40.0


@dataclass
class _Room:
    """A bound that is never in the way."""

    in_flight: int = 0
    limit: int = 640
    oldest_wait_ms: float = 0.0


@dataclass
class _Played:
    """The levels that decided, with when each began to, and when the breaker closed for good."""

    levels: list[tuple[float, int]]
    closed_at: float


def _play(call_s: float, *, small_is_embedded: bool) -> _Played:
    """Send twenty requests a second by the level of the moment, before a large server that fails for five seconds."""
    now = 0.0
    closed_at = [0.0]

    def changed(state: BreakerState) -> None:
        if state is BreakerState.CLOSED:
            closed_at.append(now)

    breaker = Breaker(BreakerRules(), lambda: now, lambda: 0.5, changed)
    pressure = Pressure(lambda: now)
    pressure.watch_stage(StageName.SMALL, None if small_is_embedded else _Room())
    pressure.watch_stage(StageName.LARGE, _Room(), breaker)
    controller = LevelController(_BOUNDS, LevelRules())
    levels = [(0.0, 0)]
    calls: list[tuple[float, int, bool]] = []
    for number in range(int(_SECONDS / _STEP_S)):
        now = number * _STEP_S
        for ends_at, epoch, fails in [each for each in calls if each[0] <= now]:
            calls.remove((ends_at, epoch, fails))
            breaker.leave(epoch, Outcome.FAILURE if fails else Outcome.SUCCESS)
        level = pressure.filling(controller.level, _BOUNDS, 0.7)
        pressure.arrived(level)
        pressure.left(level)
        if _BOUNDS[level].large and (entered := breaker.enter()) is not None:
            calls.append((now + call_s, entered, _FAILS_FROM < now < _WELL_FROM))
        if number % 5 == 4 and controller.tick(now, pressure.look()) != levels[-1][1]:
            levels.append((now, controller.level))
            pressure.now_at(controller.level)
    return _Played(levels, closed_at[-1])


@pytest.mark.parametrize("call_s", [0.1, 0.3, 0.5])
@pytest.mark.parametrize("small_is_embedded", [True, False])
def test_b13_a_step_up_that_brings_the_probes_is_not_undone_by_them(call_s: float, small_is_embedded: bool) -> None:
    """A half open breaker refuses all but its probe, and is no sign: the first step up after the fault stays."""
    played = _play(call_s, small_is_embedded=small_is_embedded)
    (first, down), (up, last) = played.levels[1:3]
    assert (down, last, len(played.levels)) == (1, 0, 3), played.levels
    assert first < _FAILS_FROM + 2
    assert _WELL_FROM < up < _WELL_FROM + 10
    assert _WELL_FROM < played.closed_at < _WELL_FROM + 15
