"""Which level decides a request while stages have room: what one can still do is not left undone."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from cascade.decision import DegradedReason, Level, Round
from cascade.guard.pressure import Pressure
from cascade.guard.queue_pressure import LevelBound
from cascade.types import StageCost, StageName
from tests.telemetry.decisions import decision


@dataclass
class Room:
    """A stage of which so many texts are in flight."""

    in_flight: int
    limit: int
    oldest_wait_ms: float = 0.0


_WAITED = Round(
    StageName.SMALL, "m", 50, 50, 0, 0, "ok", "", 1.0,
    StageCost(1, 50, tokens_estimated=True, truncated=0, room_ms=99.0),
)  # fmt: skip
_LATE = Round(StageName.LARGE, "m", 20, 0, 0, 0, DegradedReason.STAGE_TIMEOUT, "deadline", 1.0)
_BOUNDS = (LevelBound(50, 20), LevelBound(50, 8), LevelBound(50, 0), LevelBound(20, 0), LevelBound(0, 0))


@pytest.mark.parametrize(
    ("level", "small", "large", "filling"),
    [
        (0, 0, 0, 0),
        (1, 0, 0, 0),
        (1, 0, 70, 1),
        (2, 0, 0, 1),
        (2, 0, 70, 2),
        (3, 0, 0, 1),
        (3, 0, 70, 2),
        (3, 60, 0, 3),
        (4, 0, 0, 3),
        (4, 60, 0, 4),
    ],
)
def test_a_request_goes_by_a_level_above_that_asks_more_only_of_what_has_room(
    level: int, small: int, large: int, filling: int
) -> None:
    """Where the one above asks more of the small stage alone, a large stage with room is filled beside it."""
    pressure = Pressure(lambda: 0.0)
    pressure.watch_stage(StageName.SMALL, Room(small, 100))
    pressure.watch_stage(StageName.LARGE, Room(large, 100))
    pressure.now_at(level)
    assert pressure.filling(level, _BOUNDS, 0.7) == filling


def test_what_keeps_others_from_a_level_above_is_the_stage_that_it_asks_more_of() -> None:
    """Both levels wait at the small stage alike; that the large one was short says nothing of the small."""
    pressure = Pressure(lambda: 0.0)
    pressure.watch_stage(StageName.SMALL, Room(0, 100))
    pressure.watch_stage(StageName.LARGE, Room(0, 100))
    pressure.alarm(100.0, lambda: None)
    one, late = Level("one", 1), (DegradedReason.STAGE_TIMEOUT,)
    pressure.now_at(2)
    pressure.answered(decision(level=one, rounds=(_WAITED,)))
    assert pressure.filling(2, _BOUNDS, 0.7) == 1
    pressure.now_at(3)
    pressure.answered(decision(level=one, rounds=(_LATE,), degraded=late))
    assert pressure.filling(3, _BOUNDS, 0.7) == 3  # the first wait still keeps it from the small stage
