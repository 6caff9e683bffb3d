"""Replicas for a load, with some of them down."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cascade.capacity.headroom import Headroom, Situation, Unavailable, parse_unavailable
from cascade.errors import ConfigError

_headrooms = st.builds(
    lambda least, more, failures, unavailable, at_once: Headroom(
        least, least + (1 - least) * more, failures, unavailable, at_once
    ),
    st.floats(0.05, 1.0),
    st.floats(0.0, 1.0),
    st.integers(0, 5),
    st.builds(Unavailable, st.integers(0, 5)) | st.builds(Unavailable, percent=st.integers(0, 99)),
    st.booleans(),
)


@pytest.mark.parametrize(
    ("load", "situation", "replicas"),
    [
        (3.0, Situation.ALL_UP, 5),  # 3 / 0.6
        (3.0, Situation.FAILURE, 5),  # 3 / 0.85 = 3.5, so four up, and one that may fail
        (3.0, Situation.UPDATE, 5),  # of five, 25% rounded down is one: four up
        (3.0, Situation.BOTH, 6),  # of six, one updates and one fails: four up
        (6.0, Situation.ALL_UP, 10),
        (6.0, Situation.BOTH, 11),  # eight up of 11 - 2 - 1
        (0.001, Situation.ALL_UP, 1),
        (0.001, Situation.FAILURE, 2),
        (0.0, Situation.BOTH, 0),
    ],
)
def test_the_fewest_replicas_by_hand(load: float, situation: Situation, replicas: int) -> None:
    """At most 60% busy with all up, 85% with one failed, a quarter updating."""
    assert Headroom().replicas(load, situation) == replicas


def test_what_is_needed_is_the_most_of_what_is_planned_for() -> None:
    """A failure during an update counts only where it is planned for."""
    assert Headroom().needed(3.0) == 6
    assert Headroom(at_once=False).needed(3.0) == 5
    assert Headroom(at_once=False).situations == (Situation.ALL_UP, Situation.FAILURE, Situation.UPDATE)


def test_rounding_in_the_last_bits_needs_no_further_replica() -> None:
    """0.1 + 0.2 is three tenths."""
    headroom = Headroom(0.3, 0.3, 0, Unavailable())
    assert (0.1 + 0.2) / 0.3 > 1
    assert headroom.needed(0.1 + 0.2) == 1


@pytest.mark.parametrize(
    ("replicas", "percent", "down"), [(3, 25, 0), (4, 25, 1), (7, 25, 1), (8, 25, 2), (10, 99, 9), (200, 29, 58)]
)
def test_a_percentage_rounds_down(replicas: int, percent: int, down: int) -> None:
    """As Kubernetes reads maxUnavailable; in whole numbers, as 200 x 0.29 is below 58 in floats."""
    assert Unavailable(percent=percent).of(replicas) == down


def test_no_more_are_down_than_there_are() -> None:
    """A count above the replicas leaves none, and none carries nothing."""
    headroom = Headroom(unavailable=Unavailable(5))
    assert headroom.up(3, Situation.UPDATE) == 0
    assert headroom.up(1, Situation.BOTH) == 0
    assert headroom.carried(3, Situation.UPDATE) == 0.0


@pytest.mark.parametrize(("written", "read"), [("0", "0"), ("2", "2"), (" 25% ", "25%"), ("99%", "99%")])
def test_a_count_or_a_percentage_is_read(written: str, read: str) -> None:
    """Either way, and back."""
    assert str(parse_unavailable(written)) == read


@pytest.mark.parametrize("written", ["", "-1", "1.5", "25 %", "x", "nan", "²", "%"])
def test_what_is_neither_is_refused(written: str) -> None:
    """The message tells how it is written."""
    with pytest.raises(ConfigError, match="write a count or a percentage"):
        parse_unavailable(written)


def test_an_update_must_leave_some() -> None:
    """With all down there is no service."""
    with pytest.raises(ConfigError, match="less than 100%"):
        parse_unavailable("100%")


@pytest.mark.parametrize(
    "shares", [(0.0, 0.85), (0.9, 0.85), (0.6, 1.01), (float("nan"), 0.85), (0.6, float("nan")), (-0.1, 0.5)]
)
def test_shares_that_cannot_be_are_refused(shares: tuple[float, float]) -> None:
    """Utilisation is above 0, and what is borne is not below what is safe."""
    with pytest.raises(ConfigError, match="utilisation"):
        Headroom(*shares)


@pytest.mark.parametrize("failures", [-1, 10**23])
def test_failures_are_a_number_of_replicas(failures: int) -> None:
    """Nothing comes up by failing, and no pool is so large."""
    with pytest.raises(ConfigError, match="failures"):
        Headroom(failures=failures)


@pytest.mark.parametrize("load", [6e5 + 1, 1e300, float("inf"), float("nan")])
def test_a_load_beyond_every_pool_is_refused(load: float) -> None:
    """At 60% busy a million replicas carry 600,000; what overflows is refused by the same words."""
    assert Headroom().replicas(6e5, Situation.ALL_UP) == 1_000_000
    with pytest.raises(ConfigError, match="more than 1000000 replicas busy"):
        Headroom().replicas(load, Situation.ALL_UP)


def test_many_failures_take_no_longer() -> None:
    """One replica up, and a million that may fail."""
    assert Headroom(failures=1_000_000, unavailable=Unavailable()).replicas(0.5, Situation.BOTH) == 1_000_001


@given(st.floats(0, 300), _headrooms)
def test_what_is_needed_carries_the_load_and_one_less_does_not(load: float, headroom: Headroom) -> None:
    """In every situation planned for: no replica too few, and none too many."""
    needed = headroom.needed(load)
    assert all(headroom.carried(needed, each) >= load * (1 - 1e-8) for each in headroom.situations)
    if needed > 1:
        assert any(headroom.carried(needed - 1, each) < load * (1 + 1e-8) for each in headroom.situations)


@given(st.floats(0, 300), st.floats(1, 3), _headrooms)
def test_more_load_never_needs_fewer(load: float, factor: float, headroom: Headroom) -> None:
    """Monotone, and never below what the failure alone needs."""
    assert headroom.needed(load * factor) >= headroom.needed(load) >= headroom.replicas(load, Situation.FAILURE)


@given(st.integers(0, 500), _headrooms, st.sampled_from(Situation))
def test_more_replicas_never_carry_less(replicas: int, headroom: Headroom, situation: Situation) -> None:
    """Though with one more a percentage may take one more down."""
    assert headroom.carried(replicas + 1, situation) >= headroom.carried(replicas, situation)
