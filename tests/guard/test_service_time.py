"""A running quantile."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cascade.guard.service_time import ServiceTime


def test_nothing_is_said_before_sixteen_were_seen() -> None:
    """A few requests prove nothing."""
    took = ServiceTime()
    for _ in range(15):
        took.add(1.0)
    assert took.usual_s == 0.0
    took.add(1.0)
    assert 1.0 <= took.usual_s <= 1.1


@given(st.lists(st.floats(0.0, 700.0), min_size=16, max_size=16))
def test_nine_of_ten_took_no_longer_than_what_is_told_to_a_tenth(times: list[float]) -> None:
    """At least their time, and at most a tenth more; half a millisecond is the least that is told."""
    took = ServiceTime()
    for seconds in times:
        took.add(seconds)
    usual = sorted(times)[14]
    assert max(usual, 0.0005) / 1.0001 <= took.usual_s <= max(usual, 0.0005) * 1.1001


def test_what_was_long_ago_fades() -> None:
    """A server that was slow for a thousand requests is fast again after some more."""
    took = ServiceTime()
    for _ in range(1000):
        took.add(5.0)
    for _ in range(1200):
        took.add(0.01)
    assert took.usual_s <= 0.011
