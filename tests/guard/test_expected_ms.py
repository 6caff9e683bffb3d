"""The running percentile: what it says, that it refuses no more than it must, and that it recovers."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cascade.guard.expected_ms import ExpectedMs, Fit


class Hand:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        """Return the moment."""
        return self.now


def known(clock: Hand, tokens: int, *ms: float) -> ExpectedMs:
    """Return an estimate that has seen rounds of so many tokens."""
    expected = ExpectedMs(clock)
    for each in ms:
        expected.ended(tokens, each, Fit.FITS)
    return expected


@given(ms=st.lists(st.floats(0.1, 1e4), max_size=100), tokens=st.integers(1, 10**6))
def test_the_percentile_is_that_of_the_newest_rounds_of_its_size(ms: list[float], tokens: int) -> None:
    """By nearest rank over the last 64, and nothing before ten were seen."""
    newest = sorted(ms[-64:])
    said = known(Hand(), tokens, *ms).p90_ms(tokens)
    assert said == (newest[math.ceil(0.9 * len(newest)) - 1] if len(newest) >= 10 else None)


@given(tokens=st.integers(1, 10**6), remaining_ms=st.floats(0, 1e6), seen=st.lists(st.floats(0.1, 1e6), max_size=9))
def test_what_is_not_known_is_not_refused(tokens: int, remaining_ms: float, seen: list[float]) -> None:
    """A cold start scores: fewer than ten rounds are no evidence."""
    assert known(Hand(), tokens, *seen).judge(tokens, remaining_ms) is Fit.FITS


def test_a_round_that_fits_exactly_fits() -> None:
    """The boundary belongs to the round."""
    expected = known(Hand(), 1000, *[40.0] * 10)
    assert expected.judge(1000, 40.0) is Fit.FITS
    assert expected.judge(1000, 39.999) is Fit.TOO_LONG


def test_a_size_that_was_not_seen_is_judged_by_its_neighbours() -> None:
    """More tokens take no less, and no more than in proportion; between two known sizes the smaller bound holds."""
    expected = known(Hand(), 1024, *[10.0] * 10)
    assert expected.p90_ms(256) == 10.0
    assert expected.p90_ms(4096) == pytest.approx(40.0)
    for _ in range(10):
        expected.ended(8192, 30.0, Fit.FITS)
    assert expected.p90_ms(4096) == 30.0
    assert expected.p90_ms(2048) == pytest.approx(20.0)


def test_a_size_that_was_not_seen_is_refused_only_for_what_it_takes_at_least() -> None:
    """No less than fewer tokens take, and no less than in proportion of what more tokens take."""
    expected = known(Hand(), 1024, *[40.0] * 10)
    assert [expected.judge(65_536, ms) for ms in (40.0, 39.9)] == [Fit.FITS, Fit.TOO_LONG]
    assert expected.least_ms(256) == pytest.approx(10.0 / math.sqrt(2))
    for _ in range(10):
        expected.gave_up(65_536, 100.0, Fit.FITS)
    assert expected.judge(65_536, 89.9) is Fit.TOO_LONG


@pytest.mark.parametrize("every", [20, 100, 700])
def test_rare_large_rounds_are_made_beside_many_small_ones(every: int) -> None:
    """Most of a small round is not its tokens: eighty times the tokens take six times as long, and there is time for it."""
    clock = Hand()
    expected = ExpectedMs(clock)
    for number in range(1, 3000):
        clock.now += 0.05
        expected.ended(250, 10.0, expected.judge(250, 250.0))
        if number % every == 0:
            fit = expected.judge(20_000, 250.0)
            assert fit is Fit.FITS
            expected.ended(20_000, 60.0, fit)


def test_what_is_older_than_half_a_minute_is_forgotten() -> None:
    """A stage that was slow and had no work for a while is not refused any for that."""
    clock = Hand()
    expected = known(clock, 1000, *[500.0] * 20)
    clock.now = 30.0
    assert expected.p90_ms(1000) == 500.0
    clock.now = 30.1
    assert expected.p90_ms(1000) is None
    assert expected.judge(1000, 1.0) is Fit.FITS


@given(rounds=st.integers(1, 500))
def test_of_what_is_refused_one_in_twenty_is_made_all_the_same(rounds: int) -> None:
    """A bounded share: probes that fail each time never become more."""
    expected = known(Hand(), 1000, *[500.0] * 20)
    said = []
    for _ in range(rounds):
        said.append(expected.judge(1000, 50.0))
        if said[-1] is Fit.PROBE:
            expected.gave_up(1000, 50.0, Fit.PROBE)
    assert said.count(Fit.PROBE) == rounds // 20
    assert said.count(Fit.FITS) == 0


@given(slow_ms=st.floats(51, 1e5), fast_ms=st.floats(0.1, 50), before=st.integers(10, 200), early=st.integers(0, 19))
def test_a_stage_that_is_fast_again_gets_its_work_back(slow_ms: float, fast_ms: float, before: int, early: int) -> None:
    """After three probes in time, so sixty refused rounds at most, nothing is refused: no lock-out."""
    expected = known(Hand(), 1000, *[slow_ms] * before)
    for _ in range(early):
        expected.judge(1000, 50.0)
    refused = 0
    while (fit := expected.judge(1000, 50.0)) is not Fit.FITS:
        refused += 1
        assert refused <= 60
        if fit is Fit.PROBE:
            expected.ended(1000, fast_ms, fit)
    for _ in range(100):
        expected.ended(1000, fast_ms, fit)
        assert expected.judge(1000, 50.0) is Fit.FITS


def test_a_probe_that_fails_begins_the_count_anew() -> None:
    """Two in time, one late, two in time: still refused."""
    expected = known(Hand(), 1000, *[500.0] * 64)
    for in_time in (True, True, False, True, True):
        (expected.ended if in_time else expected.gave_up)(1000, 20.0, Fit.PROBE)
    assert expected.judge(1000, 50.0) is Fit.TOO_LONG


def test_a_round_that_was_given_too_little_time_says_nothing() -> None:
    """Callers in a hurry do not make a stage look fast; one that was given more than usual makes it look slow."""
    expected = known(Hand(), 1000, *[40.0] * 10)
    for _ in range(64):
        expected.gave_up(1000, 5.0, Fit.FITS)
    assert expected.p90_ms(1000) == 40.0
    for _ in range(10):
        expected.gave_up(1000, 60.0, Fit.FITS)
    assert expected.p90_ms(1000) == pytest.approx(54.0)


def test_rounds_that_are_given_up_do_not_stop_others_with_as_much_time() -> None:
    """Were half of them late, the other half would be lost; with a tenth less time they would be late for certain."""
    expected = known(Hand(), 1000)
    for _ in range(64):
        expected.gave_up(1000, 50.0, Fit.FITS)
    assert [expected.judge(1000, ms) for ms in (50.0, 45.0, 44.9)] == [Fit.FITS, Fit.FITS, Fit.TOO_LONG]


def test_little_traffic_is_probed_once_a_second() -> None:
    """At two rounds a second three probes in time take four seconds, not the thirty of one in twenty."""
    clock = Hand()
    expected = known(clock, 1000, *[2700.0] * 20)
    said = []
    while (expected.p90_ms(1000) or 0.0) > 300.0:
        said.append(expected.judge(1000, 300.0))
        if said[-1] is Fit.PROBE:
            expected.ended(1000, 8.0, Fit.PROBE)
        clock.now += 0.5
    assert clock.now <= 4.0
    assert said.count(Fit.PROBE) == 3
    assert expected.p90_ms(1000) == 8.0


def test_a_stage_whose_work_came_back_is_judged_by_the_rounds_that_brought_it() -> None:
    """Were nothing known then, whoever waited until little time was left would be sent, and fail, ten times over."""
    expected = known(Hand(), 1000, *[500.0] * 20)
    for _ in range(3):
        expected.ended(1000, 40.0, Fit.PROBE)
    assert [expected.judge(1000, ms) for ms in (40.0, 39.0)] == [Fit.FITS, Fit.TOO_LONG]


def test_once_the_rounds_that_brought_work_back_are_forgotten_one_is_no_evidence() -> None:
    """A minute later a single slow round says as little as one of a size that was never seen."""
    clock = Hand()
    expected = known(clock, 1000, *[500.0] * 20)
    for _ in range(3):
        expected.ended(1000, 40.0, Fit.PROBE)
    clock.now = 60.0
    assert expected.p90_ms(1000) is None
    expected.gave_up(1000, 300.0, Fit.FITS)
    assert expected.judge(1000, 250.0) is Fit.FITS


def test_an_estimate_below_what_rounds_take_rises_though_none_comes_back() -> None:
    """Those with just enough time by it fail one after the other; what they had is too little, by a quarter each time."""
    expected = known(Hand(), 1000, *[20.0] * 10)
    for _ in range(64):
        least_ms = expected.p90_ms(1000)
        assert least_ms is not None
        expected.gave_up(1000, least_ms, Fit.FITS, waited_ms=300.0 - least_ms)
    assert 60.0 < (expected.p90_ms(1000) or 0.0) <= 270.0


def test_a_round_that_waited_is_kept_as_nine_tenths_of_all_its_time_at_most() -> None:
    """Nine tenths of what was left to it at least; one with less than a round takes still says nothing."""
    for waited_ms, kept_ms in ((0.0, 45.0), (2.0, 46.8), (100.0, 62.5)):
        expected = known(Hand(), 1000)
        for _ in range(10):
            expected.gave_up(1000, 50.0, Fit.FITS, waited_ms=waited_ms)
        assert expected.p90_ms(1000) == pytest.approx(kept_ms)
    expected = known(Hand(), 1000, *[40.0] * 10)
    for _ in range(10):
        expected.gave_up(1000, 39.0, Fit.FITS, waited_ms=100.0)
    assert expected.p90_ms(1000) == 40.0


def test_probes_far_apart_are_none_in_a_row() -> None:
    """One an hour that came back in time says nothing of the next; three within half a minute are as old as they are."""
    clock = Hand()
    expected = known(clock, 1000, *[500.0] * 10)
    for hour in range(3):
        clock.now = hour * 3600.0
        expected.ended(1000, 10.0, Fit.PROBE)
    assert expected.p90_ms(1000) is None
    for _ in range(2):
        clock.now += 14.0
        expected.ended(1000, 20.0, Fit.PROBE)
    assert expected.p90_ms(1000) == 20.0
    clock.now += 29.0  # the last of the three alone is not older than 30 seconds
    assert expected.p90_ms(1000) == 20.0
    clock.now += 2.0
    assert expected.p90_ms(1000) is None
