"""What the controller of load levels looks at."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from cascade.decision import DegradedReason, Level, Round
from cascade.guard.pressure import Pressure
from cascade.guard.queue_pressure import LevelBound, LevelWork
from cascade.types import BreakerState, StageCost, StageName
from tests.telemetry.decisions import decision


@dataclass
class _Room:
    in_flight: int = 0
    limit: int = 100
    oldest_wait_ms: float = 0.0


@dataclass
class _Gate:
    is_open: bool = False
    refuses: bool = False
    state: BreakerState = BreakerState.CLOSED


class _Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def _scored(stage: StageName, pairs: int, *, room_ms: float | None = None, queue_ms: float | None = None) -> Round:
    cost = StageCost(1, pairs, tokens_estimated=True, truncated=0, queue_ms=queue_ms, room_ms=room_ms)
    return Round(stage, "m", pairs, pairs, 0, 0, "ok", "", 1.0, cost)


def _late(stage: StageName) -> Round:
    return Round(stage, "m", 20, 0, 0, 0, DegradedReason.STAGE_TIMEOUT, "deadline", 1.0)


def test_a_few_waits_prove_nothing_until_they_are_old() -> None:
    """Eight are enough at once; two after two seconds; one never."""
    clock = _Clock()
    pressure = Pressure(clock)
    for _ in range(7):
        pressure.waited(20.0)
    assert pressure.look().min_wait_ms is None
    pressure.waited(12.0)
    assert pressure.look().min_wait_ms == 12.0
    pressure.waited(30.0)
    clock.now = 2.0
    assert pressure.look().min_wait_ms is None
    pressure.waited(30.0)
    pressure.waited(40.0)
    assert pressure.look().min_wait_ms is None
    clock.now = 4.0
    assert pressure.look().min_wait_ms == 30.0


def test_the_least_wait_of_each_place_counts_and_the_longest_of_those_is_told() -> None:
    """A queue in front of the large stage is not hidden by a small one without."""
    pressure = Pressure(lambda: 0.0)
    for number in range(8):
        rounds = (_scored(StageName.SMALL, 50), _scored(StageName.LARGE, 20, room_ms=15.0 + number, queue_ms=5.0))
        pressure.arrived(0)
        pressure.left(0)
        pressure.answered(decision(rounds=rounds))
    told = pressure.look()
    assert told.min_wait_ms == told.large.min_wait_ms == 20.0
    assert told.small.min_wait_ms == 0.0
    assert (told.arrivals, told.small.scored, told.large.scored) == (8, 400, 160)
    assert told.work == {0: LevelWork(8, 400, 160)}
    assert pressure.look() == Pressure(lambda: 0.0).look()


def test_what_a_cache_answered_is_no_work_of_a_stage_and_hides_no_queue() -> None:
    """A round that sent nothing met no queue; of one that sent a part, the part counts."""
    pressure = Pressure(lambda: 0.0)
    for number in range(8):
        sent = _scored(StageName.LARGE, 20, room_ms=15.0, queue_ms=5.0)
        assert sent.cost is not None
        part = replace(sent, cost=replace(sent.cost, cached=12))
        kept = replace(sent, cost=StageCost(0, 0, tokens_estimated=False, truncated=0, cached=20))
        pressure.answered(decision(rounds=(part if number % 2 else sent,)))
        pressure.answered(decision(rounds=(kept,)))
    told = pressure.look()
    assert told.large.min_wait_ms == 20.0
    assert told.large.scored == 4 * 20 + 4 * 8
    assert told.work == {0: LevelWork(16, 0, 4 * 20 + 4 * 8)}


@pytest.mark.parametrize(
    ("rounds", "degraded", "misses", "of_large"),
    [
        ((_scored(StageName.SMALL, 50), _late(StageName.LARGE)), (DegradedReason.STAGE_TIMEOUT,), 20, 20),
        ((), (DegradedReason.DEADLINE_TOO_SHORT,), 20, 0),
        ((), (DegradedReason.STAGE_OVERLOADED,), 20, 0),
        ((), (DegradedReason.BREAKER_OPEN,), 0, 0),
        ((), (DegradedReason.STAGE_INVALID_ANSWER,), 0, 0),
        ((), (DegradedReason.LOAD_LEVEL,), 0, 0),
    ],
)
def test_what_load_does_to_an_answer_is_a_miss_and_what_a_fault_does_is_none(
    rounds: tuple[Round, ...], degraded: tuple[DegradedReason, ...], misses: int, of_large: int
) -> None:
    """A server that answers rubbish is not asked less for it; its breaker sees to that."""
    pressure = Pressure(lambda: 0.0)
    for _ in range(19):
        pressure.answered(decision(rounds=rounds, degraded=degraded))
    assert (pressure.look().judged, pressure.look().predicted_misses) == (0, 0)
    pressure.answered(decision(rounds=rounds, degraded=degraded))
    told = pressure.look()
    assert (told.judged, told.predicted_misses, told.large.misses) == (20, misses, of_large)
    assert pressure.look().judged == 0


def test_a_caller_in_more_of_a_hurry_than_the_release_is_not_judged() -> None:
    """That it runs short is its own choice."""
    pressure = Pressure(lambda: 0.0, least_deadline_ms=100.0)
    for deadline_ms in (99.0, 100.0):
        for _ in range(30):
            pressure.answered(decision(deadline_ms=deadline_ms, degraded=(DegradedReason.DEADLINE_TOO_SHORT,)))
    told = pressure.look()
    assert (told.judged, told.predicted_misses) == (30, 30)


def test_one_that_had_no_turn_is_a_miss_and_no_work() -> None:
    """It cost nothing, and tells nothing of what its level costs."""
    pressure = Pressure(lambda: 0.0)
    for _ in range(20):
        pressure.answered(decision(rounds=(), degraded=(DegradedReason.LOAD_LEVEL,)), admitted=False)
    told = pressure.look()
    assert (told.judged, told.predicted_misses, told.work) == (20, 20, {})


def test_work_is_learnt_of_requests_that_went_as_planned() -> None:
    """A large round that failed makes no cheap level."""
    pressure = Pressure(lambda: 0.0)
    rounds = (_scored(StageName.SMALL, 50),)
    pressure.answered(decision(rounds=rounds, degraded=(DegradedReason.BREAKER_OPEN,)))
    pressure.answered(decision(rounds=rounds, level=Level("two", 2), degraded=(DegradedReason.LOAD_LEVEL,)))
    assert pressure.look().work == {2: LevelWork(1, 50, 0)}


def test_evidence_is_of_the_level_of_the_moment() -> None:
    """What an earlier level began is neither waited for nor missed by the one that decides now."""
    pressure = Pressure(lambda: 0.0)
    late = decision(rounds=(_late(StageName.LARGE),), degraded=(DegradedReason.STAGE_TIMEOUT,))
    for _ in range(10):
        pressure.answered(late)
        pressure.waited(50.0)
    pressure.now_at(2)
    pressure.now_at(2)
    for _ in range(30):
        pressure.answered(late)
        pressure.answered(decision(rounds=(_scored(StageName.SMALL, 5, room_ms=99.0),)))
    told = pressure.look()
    assert (told.judged, told.predicted_misses, told.min_wait_ms, told.large.misses) == (0, 0, None, 0)
    for _ in range(20):
        pressure.answered(decision(level=Level("two", 2), rounds=(_scored(StageName.SMALL, 5),)))
    told = pressure.look()
    assert (told.judged, told.predicted_misses, told.min_wait_ms) == (20, 0, 0.0)


def test_bounds_breakers_and_the_queue_are_read_at_each_look() -> None:
    """As they are at that moment."""
    pressure = Pressure(lambda: 0.0)
    small, large = _Room(10, 20), _Room(30, 40, oldest_wait_ms=7.0)
    pressure.watch_stage(StageName.SMALL, small)
    pressure.watch_stage(StageName.LARGE, large, _Gate(is_open=True))
    pressure.watch_queue(lambda: 5.0)
    told = pressure.look()
    assert (told.in_flight, told.limit, told.busy_share) == (40, 60, 0.75)
    assert (told.queue_ms, told.oldest_wait_ms) == (5.0, 7.0)
    assert (told.small_breaker_open, told.large_breaker_open) == (False, True)
    large.oldest_wait_ms = 0.0
    assert pressure.look().oldest_wait_ms == 5.0


def test_a_long_wait_is_told_at_once() -> None:
    """To whoever asked for it."""
    pressure = Pressure(lambda: 0.0)
    calls: list[None] = []
    pressure.alarm(36.0, lambda: calls.append(None))
    pressure.waited(36.0)
    assert calls == []
    pressure.waited(36.1)
    assert calls == [None]


def test_there_is_room_where_each_stage_that_is_asked_has_some() -> None:
    """Within the share that may be busy; what is on its way to the large stage counts as there."""
    pressure = Pressure(lambda: 0.0)
    small, large = _Room(0, 100), _Room(0, 100)
    bound = LevelBound(50, 20)
    assert not pressure.has_room(1, bound, 0.7)
    gate = _Gate()
    pressure.watch_stage(StageName.SMALL, small)
    pressure.watch_stage(StageName.LARGE, large, gate)
    assert pressure.has_room(1, bound, 0.7)
    small.in_flight = 21
    assert not pressure.has_room(1, bound, 0.7)
    assert pressure.has_room(1, LevelBound(0, 20), 0.7)
    small.in_flight = 20
    for _ in range(3):
        assert pressure.has_room(1, bound, 0.7)
        pressure.arrived(1)
    assert not pressure.has_room(1, bound, 0.7)
    pressure.left(1)
    large.in_flight = 51
    assert not pressure.has_room(1, bound, 0.7)
    large.in_flight = 0
    gate.refuses = True  # a probe of a half open breaker is under way: no sign of overload, and no room
    assert not pressure.look().large_breaker_open
    assert not pressure.has_room(1, bound, 0.7)
    assert pressure.has_room(1, LevelBound(50, 0), 0.7)


def test_one_that_ran_short_by_the_level_above_keeps_others_from_it_for_a_second() -> None:
    """A bound above what a server can do in time makes it look idle; what was in a hurry of its own says nothing."""
    clock = _Clock()
    pressure = Pressure(clock, least_deadline_ms=100.0)
    pressure.watch_stage(StageName.SMALL, _Room(0, 1000))
    pressure.now_at(1)
    late = (DegradedReason.STAGE_TIMEOUT,)
    pressure.answered(decision(deadline_ms=99.0, degraded=late))
    pressure.answered(decision(level=Level("one", 1), degraded=late))
    pressure.answered(decision(level=Level("three", 3), degraded=late))
    pressure.answered(decision())
    assert pressure.has_room(0, LevelBound(50, 0), 0.7)
    pressure.answered(decision(degraded=late))
    clock.now = 0.9
    assert not pressure.has_room(0, LevelBound(50, 0), 0.7)
    clock.now = 1.0
    assert pressure.has_room(0, LevelBound(50, 0), 0.7)
    pressure.answered(decision(degraded=late))
    clock.now = 0.5
    assert pressure.has_room(0, LevelBound(50, 0), 0.7)  # a clock that goes back forgets it


def test_one_that_waited_long_by_the_level_above_keeps_others_from_it_too() -> None:
    """Longer than half of what is looked into at once: before the queue that fills costs anybody an answer."""
    clock = _Clock()
    pressure = Pressure(clock)
    pressure.watch_stage(StageName.SMALL, _Room(0, 1000))
    pressure.alarm(100.0, lambda: None)
    pressure.now_at(1)
    pressure.answered(decision(rounds=(_scored(StageName.SMALL, 50, room_ms=20.0, queue_ms=30.0),)))
    assert pressure.has_room(0, LevelBound(50, 0), 0.7)
    pressure.answered(decision(rounds=(_scored(StageName.SMALL, 50, room_ms=20.0, queue_ms=31.0),)))
    clock.now = 0.2
    assert not pressure.has_room(0, LevelBound(50, 0), 0.7)
    clock.now = 0.21  # four times the wait: the queue is gone by then
    assert pressure.has_room(0, LevelBound(50, 0), 0.7)
    assert pressure.look().misses_above == 0


def test_what_went_by_the_level_above_is_told_apart() -> None:
    """It is no evidence against the level of the moment, and begins anew with it."""
    clock = _Clock()
    pressure = Pressure(clock)
    pressure.now_at(1)
    for number in range(10):
        pressure.answered(decision(degraded=(DegradedReason.STAGE_TIMEOUT,) if number < 3 else ()))
    assert pressure.look().judged_above == 0
    clock.now = 2.0
    told = pressure.look()
    assert (told.judged, told.predicted_misses, told.judged_above, told.misses_above) == (0, 0, 10, 3)
    pressure.answered(decision(degraded=(DegradedReason.STAGE_TIMEOUT,)))
    pressure.now_at(2)
    clock.now = 4.0
    assert pressure.look().judged_above == 0


def test_a_request_larger_than_the_bound_goes_alone() -> None:
    """As it would wait for room."""
    pressure = Pressure(lambda: 0.0)
    room = _Room(0, 40)
    pressure.watch_stage(StageName.SMALL, room)
    assert pressure.has_room(0, LevelBound(50, 0), 0.7)
    room.in_flight = 1
    assert not pressure.has_room(0, LevelBound(50, 0), 0.7)


def test_a_clock_that_goes_back_closes_windows() -> None:
    """And nothing waits for a time that will not come."""
    clock = _Clock()
    pressure = Pressure(clock)
    for _ in range(3):
        pressure.waited(20.0)
        pressure.answered(decision())
    clock.now = -100.0
    told = pressure.look()
    assert (told.judged, told.min_wait_ms) == (3, 20.0)
