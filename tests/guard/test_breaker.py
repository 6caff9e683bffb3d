"""The breaker: what opens it, for how long, who finds out that it may close, and what never counts."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cascade.guard.breaker import Breaker, Outcome
from cascade.policy.stage_specs import BreakerRules
from cascade.types import BreakerState

FAIL, WELL, NOTHING = Outcome.FAILURE, Outcome.SUCCESS, Outcome.IGNORE


class Played:
    """A breaker on a clock that a test moves; ``draw`` is 0.5, the middle of the jitter, unless said."""

    def __init__(self, draw: float = 0.5, **rules: Any) -> None:
        self.now = 1000.0
        self.states: list[BreakerState] = []
        self.breaker = Breaker(BreakerRules(**rules), lambda: self.now, lambda: draw, self.states.append)

    def round(self, outcome: Outcome) -> bool:
        """Play a round; tell whether it left."""
        entered = self.breaker.enter()
        if entered is not None:
            self.breaker.leave(entered, outcome)
        return entered is not None

    def rounds(self, *outcomes: Outcome) -> list[bool]:
        """Play rounds one after the other."""
        return [self.round(outcome) for outcome in outcomes]

    @property
    def state(self) -> str:
        """Return the state's name."""
        return self.breaker.state.value


def test_b13_failures_in_a_row_open_it_and_nothing_leaves() -> None:
    """Five, by default; the sixth round is refused at once."""
    played = Played()
    assert played.rounds(*[FAIL] * 6) == [True] * 5 + [False]
    assert (played.state, played.breaker.refuses, played.states) == ("open", True, [BreakerState.OPEN])


def test_b11_failures_with_successes_between_them_are_not_in_a_row() -> None:
    """Five times fail and success never open it, nor do as many as you like while the share is below its limit."""
    played = Played(failure_share=0.6)
    assert all(played.rounds(*[FAIL, WELL] * 500))
    assert played.states == []


def test_b11_failures_over_a_lifetime_are_not_in_a_row() -> None:
    """One failure in eleven seconds, nothing between: each is alone in its window."""
    played = Played()
    for _ in range(50):
        assert played.round(FAIL)
        played.now += 11.0
    assert played.states == []


def test_b6_the_window_is_configured() -> None:
    """The same failures are in a row where the window is long enough for them."""
    played = Played(window_s=60.0)
    for _ in range(5):
        assert played.round(FAIL)
        played.now += 11.0
    assert played.state == "open"


def test_b6_a_share_of_failures_opens_it_once_there_are_enough_rounds() -> None:
    """Half of twenty, with never five in a row; half of nineteen say nothing."""
    played = Played()
    assert all(played.rounds(*[WELL, FAIL] * 9, WELL))
    assert played.state == "closed"
    assert played.round(FAIL)
    assert played.state == "open"


def test_b7_what_did_not_reach_the_server_says_nothing() -> None:
    """Neither a success that ends a row nor a failure that makes one, closed or half open."""
    played = Played()
    played.rounds(FAIL, FAIL, NOTHING, FAIL, NOTHING, FAIL, NOTHING)
    assert played.state == "closed"
    played.round(FAIL)
    assert played.state == "open"
    played.now += 5.0
    assert played.rounds(NOTHING, NOTHING, NOTHING) == [True] * 3
    assert played.state == "half_open"


def test_b13_half_open_lets_one_round_through_at_a_time_and_three_close_it() -> None:
    """A server that comes back is not met by everybody at once."""
    played = Played()
    played.rounds(*[FAIL] * 5)
    played.now += 4.9
    assert not played.round(WELL)
    played.now += 0.1
    assert not played.breaker.refuses
    for _ in range(3):
        probe = played.breaker.enter()
        assert probe is not None
        assert [played.breaker.enter() for _ in range(10)] == [None] * 10
        assert (played.breaker.refuses, played.breaker.is_open) == (True, False)
        played.breaker.leave(probe, WELL)
        assert not played.breaker.refuses
    assert played.states == [BreakerState.OPEN, BreakerState.HALF_OPEN, BreakerState.CLOSED]
    assert all(played.rounds(*[WELL] * 10, *[FAIL] * 4))


def test_b6_a_failing_probe_opens_it_for_twice_as_long_up_to_a_most() -> None:
    """5, 10, 20, 40, then a minute each time."""
    played = Played()
    played.rounds(*[FAIL] * 5)
    for seconds in (5, 10, 20, 40, 60, 60):
        played.now += seconds - 0.01
        assert not played.round(FAIL)
        played.now += 0.01
        assert played.round(FAIL)
        assert played.state == "open"


def test_b6_a_flapping_server_is_waited_for_ever_longer() -> None:
    """Closing alone does not reset the time, a minute of health does."""
    played = Played()
    for seconds in (5, 10, 20):
        played.rounds(*[FAIL] * 5)
        played.now += seconds - 0.01
        assert not played.round(WELL)
        played.now += 0.01
        assert played.rounds(WELL, WELL, WELL) == [True] * 3
        assert played.state == "closed"
    played.now += 61.0
    played.rounds(*[FAIL] * 5)
    played.now += 5.0
    assert played.round(WELL)


@pytest.mark.parametrize(("draw", "seconds"), [(0.0, 4.0), (0.999999, 6.0)])
def test_the_time_open_is_drawn_from_a_fifth_around_it(draw: float, seconds: float) -> None:
    """Many sidecars do not probe a server in the same moment."""
    played = Played(draw)
    played.rounds(*[FAIL] * 5)
    played.now += seconds - 0.01
    assert not played.round(WELL)
    played.now += 0.02
    assert played.round(WELL)


def test_rounds_that_began_before_it_opened_no_longer_count() -> None:
    """A late success does not close it, and a late failure of the closed time does not fail its probe."""
    played = Played()
    late = [played.breaker.enter() for _ in range(2)]
    played.rounds(*[FAIL] * 5)
    played.now += 5.0
    probe = played.breaker.enter()
    assert None not in late
    assert probe is not None
    for entered, outcome in zip(late, (WELL, FAIL), strict=True):
        played.breaker.leave(entered or 0, outcome)
    assert (played.state, played.breaker.enter()) == ("half_open", None)
    played.breaker.leave(probe, WELL)
    assert played.state == "half_open"


@given(
    steps=st.lists(st.tuples(st.floats(0, 30), st.sampled_from([FAIL, WELL, NOTHING])), max_size=200),
    draw=st.floats(0, 0.999),
)
def test_it_opens_exactly_where_the_window_says_so(steps: list[tuple[float, Outcome]], draw: float) -> None:
    """Counted again from all rounds of the window, in slices of a second, it is open after the same step."""
    played = Played(draw, min_calls=6, consecutive=4)
    seen: list[tuple[int, bool]] = []
    for seconds, outcome in steps:
        played.now += seconds
        if not played.round(outcome):
            return
        if played.states:
            assert _should_open([*seen, (int(played.now), True)])
            return
        if outcome is not NOTHING:
            seen.append((int(played.now), outcome is FAIL))
            assert not (outcome is FAIL and _should_open(seen))


def _should_open(seen: list[tuple[int, bool]]) -> bool:
    newest = [failed for at, failed in seen if at > seen[-1][0] - 10]
    row = seen[-4:]
    in_a_row = len(row) == 4 and all(failed for _, failed in row) and row[0][0] > seen[-1][0] - 10
    return in_a_row or (len(newest) >= 6 and sum(newest) >= 0.5 * len(newest))


@pytest.mark.parametrize(
    "rules",
    [{"window_s": 0.0}, {"min_calls": 0}, {"failure_share": 0.0}, {"failure_share": 1.1}, {"consecutive": 0},
     {"slow_ms": 0.0}, {"open_s": 0.0}, {"probes": 0}, {"probes": 4}, {"open_s": 9.0, "max_open_s": 8.0}],
)  # fmt: skip
def test_rules_have_bounds(rules: dict[str, Any]) -> None:
    """What would never open, never close or count nothing is refused with the release."""
    with pytest.raises(ValueError, match=next(iter(rules))):
        BreakerRules(**rules)
