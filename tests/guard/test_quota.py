"""What one tenant may ask for."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cascade.guard.quota import Quota, TokenBucket


class _Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@given(st.floats(0.1, 50), st.integers(1, 20), st.lists(st.floats(0, 2), max_size=60))
def test_no_more_get_through_than_the_burst_and_the_rate(rate: float, burst: int, pauses: list[float]) -> None:
    """In any time from the start, at most burst + rate * seconds; who is refused gets through after the wait told."""
    clock = _Clock()
    bucket = TokenBucket(rate, burst, clock)
    through = 0
    for pause in pauses:
        clock.now += pause
        wait_s = bucket.take()
        through += not wait_s
        assert through <= burst + rate * clock.now + 1e-6
        if wait_s:
            clock.now += wait_s + 1e-9
            assert bucket.take() == 0
            through += 1


def test_a_rate_of_zero_lets_none_through() -> None:
    """Zero is a rate, and no wait ends it."""
    assert TokenBucket(0.0, 5, _Clock()).take() == math.inf


def test_a_clock_that_goes_back_fills_nothing_and_breaks_nothing() -> None:
    """What was there stays, and filling goes on from there."""
    clock = _Clock()
    clock.now = 100.0
    bucket = TokenBucket(1.0, 1, clock)
    assert bucket.take() == 0
    clock.now = 50.0
    assert bucket.take() == 1.0
    clock.now = 51.0
    assert bucket.take() == 0


def test_more_than_a_burst_goes_through_when_the_bucket_is_full_and_is_paid_back() -> None:
    """Five at once of a burst of three: the two too many, and the next one, take three seconds at one a second."""
    clock = _Clock()
    bucket = TokenBucket(1.0, 3, clock)
    assert bucket.take(5) == 0.0
    assert bucket.take() == 3.0
    clock.now = 3.0
    assert bucket.take(5) == 2.0
    assert bucket.take() == 0.0


@pytest.mark.parametrize(
    ("concurrent", "here", "count", "has"),
    [(4, 0, 4, True), (4, 1, 3, True), (4, 1, 4, False), (4, 0, 9, True), (4, 1, 9, False), (0, 0, 1, False), (None, 9, 9, True)],
)  # fmt: skip
def test_what_may_never_be_at_once_has_a_place_where_nobody_else_is(
    concurrent: int | None, here: int, count: int, has: bool
) -> None:
    """Else a body of many queries could never be served; a bound of 0 lets none in."""
    quota = Quota(concurrent=concurrent)
    quota.here = here
    assert quota.has_place(count) is has
