"""The controller of load levels, look by look."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cascade.guard.level_controller import LevelController, LevelRules
from cascade.guard.queue_pressure import LevelBound, LevelWork, QueuePressure, StagePressure
from cascade.types import LevelReason

_BOUNDS = (LevelBound(50, 20), LevelBound(50, 8), LevelBound(50, 0), LevelBound(20, 0), LevelBound(0, 0))
_RULES = LevelRules(wait_target_ms=9.0)
_CALM = QueuePressure(arrivals=5, judged=20)
_OPEN = QueuePressure(large=StagePressure(breaker_open=True))


def _waits(wait_ms: float) -> QueuePressure:
    return QueuePressure(arrivals=50, judged=50, admission_wait_ms=wait_ms)


class _Looks:
    """A controller, and looks a quarter second apart."""

    def __init__(self, **fields: Any) -> None:
        self.controller = LevelController(_BOUNDS, _RULES, **fields)
        self.at = 1000.0
        self.controller.tick(self.at, _CALM)

    def see(self, pressure: QueuePressure, looks: int = 1) -> int:
        """Look so many times at the same pressure."""
        for _ in range(looks):
            self.at += 0.25
            self.controller.tick(self.at, pressure)
        return self.controller.level

    def seconds_until_level(self, level: int, pressure: QueuePressure = _CALM) -> float:
        """Return how long it takes to reach a level."""
        began = self.at
        while self.see(pressure) != level:
            assert self.at - began < 1000
        return self.at - began


def test_calm_moves_nothing() -> None:
    """The first level decides for as long as nothing waits."""
    looks = _Looks()
    assert looks.see(_CALM, 1000) == 0
    assert looks.controller.why is LevelReason.START
    assert looks.controller.forecast() is None


@pytest.mark.parametrize(
    ("pressure", "level", "why"),
    [
        (_waits(9.0), 0, LevelReason.START),
        (_waits(9.1), 1, LevelReason.WAIT),
        (_waits(36.1), 2, LevelReason.WAIT),
        (QueuePressure(judged=100, predicted_misses=5), 0, LevelReason.START),
        (QueuePressure(judged=100, predicted_misses=6), 1, LevelReason.MISSES),
        (QueuePressure(judged=10, predicted_misses=1), 0, LevelReason.START),
        (QueuePressure(judged=100, predicted_misses=51), 2, LevelReason.MISSES),
        (_OPEN, 2, LevelReason.BREAKER),
        (QueuePressure(small=StagePressure(breaker_open=True)), 0, LevelReason.START),
    ],
)
def test_one_look_steps_down_for_waits_misses_and_the_large_breaker(
    pressure: QueuePressure, level: int, why: LevelReason
) -> None:
    """By one, by two where it is far off, and to the first level without the large stage where its breaker is open."""
    looks = _Looks()
    assert looks.see(pressure) == level
    assert looks.controller.why is why


@pytest.mark.parametrize("stuck_looks", [4, 8])
def test_a_stage_that_was_stuck_and_is_asked_nothing_since_does_not_keep_the_level_down(stuck_looks: int) -> None:
    """What a pair took of a stage while it hung is forgotten: beside an embedded stage no request goes by the level above."""
    looks = _Looks()
    scoring = QueuePressure(arrivals=12, large=StagePressure(scored=120, in_flight=30, limit=300))
    assert looks.see(scoring, 100) == 0
    looks.see(QueuePressure(arrivals=12, large=StagePressure(in_flight=290, limit=300)), stuck_looks)
    looks.see(QueuePressure(arrivals=12, large=StagePressure(limit=300, breaker_open=True)), 20)
    assert looks.controller.level == 2
    well_again = QueuePressure(arrivals=12, large=StagePressure(limit=300))
    assert looks.seconds_until_level(0, well_again) < 4 * _RULES.hold_s + 2 * 1.5 * _RULES.hold_s


def test_a_queue_found_standing_again_and_again_steps_down() -> None:
    """At the fourth look, or where its head is very old at the second; found once, it may be gone between."""
    standing = QueuePressure(queue_ms=10.0)
    looks = _Looks()
    assert looks.see(standing, 3) == 0
    assert looks.see(standing) == 1
    assert looks.controller.why is LevelReason.QUEUE_AGE
    old = QueuePressure(large=StagePressure(oldest_wait_ms=40.0))
    looks = _Looks()
    assert looks.see(old) == 0
    assert looks.see(_CALM) == 0
    assert looks.see(old) == 0
    assert looks.see(old) == 2


def test_a_bound_that_is_full_for_a_second_steps_down_to_where_less_is_asked_of_it() -> None:
    """In flight at the limit all the time is no room for anybody else; the levels between ask the small stage alike."""
    full = QueuePressure(small=StagePressure(in_flight=64, limit=64))
    looks = _Looks()
    assert looks.see(full, 4) == 0
    assert looks.see(full) == 3
    assert looks.controller.why is LevelReason.LIMIT


def test_a_step_down_is_given_an_interval_to_show() -> None:
    """Looks that follow sooner, since something waited long, do not run through all levels."""
    looks = _Looks()
    assert looks.see(_waits(10.0)) == 1
    looks.controller.tick(looks.at + 0.05, _waits(10.0))
    assert looks.controller.level == 1
    assert looks.see(_waits(10.0)) == 2


def test_the_last_level_is_the_last() -> None:
    """There is nothing below it."""
    looks = _Looks()
    assert looks.see(_waits(1000.0), 100) == 4


def test_up_goes_one_at_a_time_after_a_clean_hold() -> None:
    """Five seconds each, counted from the last sign of overload or the last step."""
    looks = _Looks()
    looks.see(_waits(40.0))
    assert looks.controller.level == 2
    assert looks.seconds_until_level(1) == 5.0
    assert looks.controller.why is LevelReason.ROOM
    assert looks.seconds_until_level(0) == 5.0


def test_a_sign_of_overload_begins_the_hold_anew() -> None:
    """Even where it steps no further."""
    looks = _Looks()
    looks.see(_waits(10.0), 8)
    assert looks.controller.level == 4
    looks.see(_CALM, 16)
    looks.see(_waits(10.0))
    assert looks.seconds_until_level(3) == 5.0


@pytest.mark.parametrize(("jitter", "seconds"), [(0.8, 4.0), (1.2, 6.0)])
def test_replicas_hold_for_different_times(jitter: float, seconds: float) -> None:
    """So that they do not come back all at once."""
    looks = _Looks(jitter=jitter)
    looks.see(_waits(10.0))
    assert looks.seconds_until_level(0) == seconds


def test_a_step_up_that_fails_doubles_the_hold_and_two_calm_minutes_end_that() -> None:
    """5, 10, 20, 40, 60 and no longer; overload later than ten seconds after the step is another one."""
    looks = _Looks()
    looks.see(_waits(10.0))
    for hold in (5.0, 10.0, 20.0, 40.0, 60.0, 60.0):
        assert looks.controller.hold_s == hold
        assert looks.seconds_until_level(0) == hold
        looks.see(_waits(10.0))
    looks.seconds_until_level(0)
    looks.see(_CALM, 41)
    looks.see(_waits(10.0))
    assert looks.controller.hold_s == 60.0
    looks.see(_CALM, 4 * 121)
    assert looks.controller.hold_s == 5.0


def test_up_waits_for_a_forecast_of_room() -> None:
    """Half busy by 8 large pairs a request is too busy by 20; by 10 it would be just right."""
    work = {0: LevelWork(1, 50, 20), 1: LevelWork(10, 500, 80)}
    busy = QueuePressure(
        arrivals=10, judged=20, work=work,
        small=StagePressure(scored=500, in_flight=0, limit=100), large=StagePressure(scored=80, in_flight=50, limit=100),
    )  # fmt: skip
    looks = _Looks()
    looks.see(_waits(10.0))
    assert looks.see(busy, 400) == 1
    assert looks.controller.forecast() == pytest.approx(1.25)
    idle = QueuePressure(
        arrivals=4, judged=20, work={0: LevelWork(1, 50, 20), 1: LevelWork(4, 200, 32)},
        small=StagePressure(scored=200, in_flight=0, limit=100), large=StagePressure(scored=32, in_flight=20, limit=100),
    )  # fmt: skip
    assert looks.seconds_until_level(0, idle) < 10


def test_a_stage_that_was_full_is_remembered_for_four_holds() -> None:
    """A bound above what the server can do makes it look idle; and what is not asked any more may have recovered."""
    looks = _Looks()
    flood = QueuePressure(
        arrivals=50, judged=50, predicted_misses=50, work={0: LevelWork(1, 50, 20), 2: LevelWork(1, 50, 0)},
        large=StagePressure(scored=100, misses=50, limit=1000, in_flight=10),
    )  # fmt: skip
    looks.see(flood, 4)
    looks.see(QueuePressure(arrivals=50, judged=50), 1)
    assert looks.controller.level >= 2
    took = looks.seconds_until_level(1, QueuePressure(arrivals=50, judged=50))
    assert 20.0 <= took <= 31.0


@pytest.mark.parametrize(
    ("misses", "judged", "rises_s"), [(0, 40, 5.0), (1, 4, 5.0), (2, 40, 5.0), (3, 40, math.inf), (2, 4, math.inf)]
)
def test_what_runs_short_by_the_level_above_begins_the_hold_anew(misses: int, judged: int, rises_s: float) -> None:
    """Two at least and more than the share of misses: the level above would be stepped down from at once."""
    looks = _Looks()
    looks.see(_waits(9.1))
    short = QueuePressure(arrivals=5, judged=20, judged_above=judged, misses_above=misses)
    if math.isinf(rises_s):
        assert looks.see(short, 400) == 1
    else:
        assert looks.seconds_until_level(0, short) == pytest.approx(rises_s)


def test_what_the_level_above_asks_more_of_is_full_where_that_runs_short() -> None:
    """However idle its bound makes it look: what it scored then is what there is of it, for four holds."""
    looks = _Looks()
    looks.see(_waits(9.1))
    large = StagePressure(scored=50, in_flight=1, limit=1000)
    short = QueuePressure(arrivals=10, judged=20, judged_above=20, misses_above=5, large=large)
    looks.see(short, 40)
    assert looks.seconds_until_level(0, QueuePressure(arrivals=10, judged=20, large=large)) == pytest.approx(20.25)


_IDLE = StagePressure()


def _pressed(small: StagePressure = _IDLE, large: StagePressure = _IDLE) -> QueuePressure:
    misses = small.misses + large.misses
    return QueuePressure(arrivals=20, judged=20, predicted_misses=misses, small=small, large=large)


_LATE = StagePressure(misses=8)
_SHUT = StagePressure(misses=8, min_wait_ms=99.0, oldest_wait_ms=99.0, in_flight=9, limit=9, breaker_closed=False)


@pytest.mark.parametrize(
    ("pressure", "levels"),
    [
        (_pressed(small=_LATE), [3, 4, 4]),
        (_pressed(large=_LATE), [1, 2, 2]),
        (_pressed(small=_LATE, large=_LATE), [2, 4, 4]),
        (_pressed(small=StagePressure(min_wait_ms=9.1)), [3, 4, 4]),
        (_pressed(small=StagePressure(misses=20)), [3, 4, 4]),
        (_pressed(large=StagePressure(min_wait_ms=36.1)), [2, 2, 2]),
        (_pressed(small=StagePressure(misses=2), large=StagePressure(misses=1)), [3, 4, 4]),
        (_pressed(small=StagePressure(misses=1), large=StagePressure(misses=1)), [1, 2, 3]),
    ],
)
def test_a_step_goes_to_the_first_level_that_asks_less_of_what_is_pressed(
    pressure: QueuePressure, levels: list[int]
) -> None:
    """Two levels at least where it is far off, and none where no level below asks less of it."""
    looks = _Looks()
    assert [looks.see(pressure) for _ in levels] == levels


def test_levels_that_ask_alike_by_their_bounds_are_stepped_through() -> None:
    """They differ in what bounds do not tell: in mode observe, in what is scored beside answers."""
    controller = LevelController((LevelBound(0, 50),) * 2, _RULES)
    assert controller.tick(0.0, _pressed(large=_LATE)) == 1


@pytest.mark.parametrize("level", [0, 1])
def test_what_waits_or_fails_at_a_stage_whose_breaker_is_not_closed_is_no_sign(level: int) -> None:
    """Nobody asks it: half open too, when a probe that fails is a miss."""
    looks = _Looks()
    looks.see(_CALM if level == 0 else _waits(9.1))
    for stages in ({"small": _SHUT}, {"large": _SHUT}):
        assert looks.see(_pressed(**stages), 20) <= level


def test_an_open_small_breaker_takes_back_what_was_stepped_down_for_that_stage() -> None:
    """At once, however long the hold, and what measured it then is forgotten: a level that asks the large one decides."""
    looks = _Looks()
    busy = StagePressure(scored=50, misses=20, in_flight=90, limit=100)
    assert looks.see(_pressed(small=busy), 8) == 4
    assert looks.see(_pressed(small=_SHUT)) == 0
    assert looks.controller.why is LevelReason.BREAKER
    assert looks.see(_pressed(large=_LATE, small=_SHUT), 2) == 2
    assert looks.controller.forecast() == 0.0
    assert looks.seconds_until_level(0, _pressed(small=_SHUT)) == pytest.approx(10.0, abs=0.5)


def test_an_open_small_breaker_leaves_what_was_stepped_down_for_the_large_stage() -> None:
    """Overload there is none of its doing."""
    looks = _Looks()
    assert looks.see(_pressed(large=_LATE)) == 1
    assert looks.see(_pressed(small=_LATE)) == 3
    assert looks.see(_pressed(small=_SHUT)) == 1
    assert looks.see(_OPEN) == 2
    assert looks.see(QueuePressure(small=_SHUT, large=StagePressure(breaker_open=True)), 50) == 2


@pytest.mark.parametrize(("looks", "level"), [(8, 0), (50, 4)])
def test_what_waited_for_its_turn_just_before_the_small_breaker_opened_had_waited_on_it(looks: int, level: int) -> None:
    """Within ten seconds of the last step; what was stepped to before was another overload."""
    seen = _Looks()
    assert seen.see(_waits(9.1), looks) == 4
    assert seen.see(_pressed(small=_SHUT)) == level


def test_a_small_stage_that_is_overloaded_still_is_asked_for_less() -> None:
    """Its breaker is closed: to twenty pairs, then to none, and again after each time that it opened."""
    looks = _Looks()
    for _ in range(3):
        assert [looks.see(_pressed(small=_LATE)) for _ in range(2)] == [3, 4]
        assert looks.see(_pressed(small=_SHUT), 20) == 0


def test_what_an_operator_pinned_and_let_go_of_is_not_taken_back() -> None:
    """Only what was stepped to is."""
    looks = _Looks()
    looks.controller.go_to(2, LevelReason.UNPINNED)
    assert looks.see(_pressed(small=_SHUT)) == 2


def test_one_stage_alone_is_asked_for_less_and_its_breaker_steps_to_the_first_level() -> None:
    """All levels answer alike while it is open, and the first brings the probes."""
    controller = LevelController((LevelBound(50, 0), LevelBound(20, 0), LevelBound(0, 0)), _RULES)
    levels = [controller.tick(0.25 * number, _pressed(small=_LATE)) for number in range(3)]
    assert levels == [1, 2, 2]
    assert controller.tick(1.0, _pressed(small=_SHUT)) == 0


def test_nothing_goes_up_to_a_large_stage_that_is_not_asked() -> None:
    """Between levels without it there is no need of it."""
    looks = _Looks()
    looks.see(_OPEN)
    looks.see(QueuePressure(judged=50, admission_wait_ms=10.0, large=StagePressure(breaker_open=True)))
    assert looks.controller.level == 3
    assert looks.see(_OPEN, 100) == 2
    assert looks.seconds_until_level(1) <= 0.25


def test_what_an_operator_let_go_of_is_stepped_from_there() -> None:
    """After a hold."""
    looks = _Looks()
    looks.controller.go_to(3, LevelReason.UNPINNED)
    assert looks.controller.why is LevelReason.UNPINNED
    assert looks.seconds_until_level(2) == 5.0


@pytest.mark.parametrize("jump_s", [-3600.0, 7200.0, -math.pi])
def test_a_clock_that_jumps_moves_no_level(jump_s: float) -> None:
    """Neither up, as if all that time had been clean, nor down; and the hold goes on from where it was."""
    looks = _Looks()
    looks.see(_waits(10.0))
    looks.see(_CALM, 8)
    looks.at += jump_s
    assert looks.see(_CALM) == 1
    assert 1.5 <= looks.seconds_until_level(0) <= 3.0


_STAGES = st.builds(
    StagePressure, scored=st.integers(0, 1000), in_flight=st.integers(0, 100), limit=st.integers(0, 100),
    min_wait_ms=st.none() | st.floats(0, 1e6), oldest_wait_ms=st.floats(0, 1e6), misses=st.integers(0, 100),
    breaker_open=st.booleans(),
)  # fmt: skip
_ANY = st.builds(
    QueuePressure, arrivals=st.integers(0, 1000), judged=st.integers(0, 100), predicted_misses=st.integers(0, 100),
    admission_wait_ms=st.none() | st.floats(0, 1e6), queue_ms=st.floats(0, 1e6), small=_STAGES, large=_STAGES,
    work=st.dictionaries(st.integers(0, 4), st.builds(LevelWork, st.integers(1, 9), st.integers(0, 450), st.integers(0, 180))),
)  # fmt: skip


@settings(deadline=None, max_examples=150)
@given(st.lists(st.tuples(st.floats(-1e4, 1e4), _ANY), max_size=30))
def test_whatever_is_seen_whenever_the_level_is_one_there_is_and_up_is_by_one(
    seen: list[tuple[float, QueuePressure]],
) -> None:
    """Any numbers at any times: no fault, no level that does not exist, one step up at most, and the hold within bounds."""
    controller = LevelController(_BOUNDS, _RULES)
    at = 0.0
    for step_s, pressure in seen:
        before = controller.level
        at += step_s
        assert 0 <= controller.tick(at, pressure) < len(_BOUNDS)
        assert controller.level >= before - 1 or pressure.small.is_shut
        assert 5.0 <= controller.hold_s <= 60.0
        forecast = controller.forecast()
        assert forecast is None or forecast >= 0


def test_two_looks_in_no_time_foretell_nothing_beyond_all_bounds() -> None:
    """What came between them, over the time between them, is more than a float holds."""
    controller = LevelController((LevelBound(50, 20), LevelBound(50, 0)), LevelRules())
    controller.tick(0.0, QueuePressure(judged=20, predicted_misses=20))
    controller.tick(2.3e-308, QueuePressure(arrivals=4))
    assert controller.forecast() == 0.0
