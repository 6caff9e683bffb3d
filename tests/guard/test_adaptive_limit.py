"""The adaptive limit: what moves it, within which bounds, and what it is worth before a server that batches."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cascade.guard.adaptive_limit import AdaptiveLimit

from .batching_server import Adaptive, BatchingServer, Fixed, Load, goodput


def limit_of(most_texts: int = 1024, most_tokens: int = 10**6) -> AdaptiveLimit:
    """Return a limit that begins with ten calls of 32 texts and 3,200 tokens."""
    return AdaptiveLimit(most_texts=most_texts, most_tokens=most_tokens, call_texts=32, call_tokens=3200)


def answer(
    limit: AdaptiveLimit, ms: float, *, times: int = 1, in_flight: int | None = None, pressed: bool = False
) -> int:
    """Answer calls, by default with all in flight that may be; return the texts that may be in flight then."""
    for _ in range(times):
        busy = limit.texts if in_flight is None else in_flight
        limit.answered(texts=32, tokens=3200, ms=ms, in_flight=busy, pressed=pressed)
    return limit.texts


def test_it_begins_with_ten_calls_and_grows_while_answers_stay_as_fast() -> None:
    """Up to the configured most, in texts and in tokens."""
    limit = limit_of()
    assert (limit.texts, limit.tokens) == (320, 32_000)
    assert answer(limit, 20.0) > 320
    assert answer(limit, 20.0, times=200) == 1024
    assert limit.tokens == 102_400
    assert limit_of(most_tokens=5000).tokens == 5000


def test_it_shrinks_where_answers_become_slower_than_half_as_long_again() -> None:
    """To where the spare of two calls holds it, and back when the server has become fast again."""
    limit = limit_of()
    answer(limit, 20.0, times=100)
    assert answer(limit, 29.0, times=5) == 1024
    slow = answer(limit, 80.0, times=30)
    assert slow < 320
    assert answer(limit, 20.0, times=100) == 1024


def test_it_does_not_grow_where_it_is_not_used() -> None:
    """An idle hour is no evidence that a thousand texts would be welcome."""
    limit = limit_of()
    assert answer(limit, 20.0, times=1000, in_flight=159) == 320


def test_it_does_not_grow_while_the_server_says_that_it_has_a_queue_but_does_shrink() -> None:
    """A signal that has grown old is told in the same way."""
    limit = limit_of()
    assert answer(limit, 20.0, times=100, pressed=True) == 320
    assert answer(limit, 80.0, times=10, pressed=True) < 320


def test_it_does_not_grow_where_calls_take_most_of_the_time_they_have_unless_there_is_but_one() -> None:
    """What is usual follows a queue that stands; alone, a call that takes long is no queue of ours."""
    limit = limit_of()
    for ms, had_ms, in_flight, grows in (
        (80.0, 100.0, 320, False),
        (70.0, 100.0, 320, True),
        (80.0, 200.0, 512, True),
    ):
        before = limit.texts
        limit.answered(texts=32, tokens=3200, ms=ms, in_flight=in_flight, had_ms=had_ms)
        assert (limit.texts > before) is grows
    for number in range(60):
        limit.dropped(began=number, now=number)
    assert limit.texts == 32
    limit.answered(texts=32, tokens=3200, ms=80.0, in_flight=32, had_ms=100.0)
    assert limit.texts > 32


def test_what_got_no_room_cuts_it_once_for_all_that_were_under_way() -> None:
    """Thirty 429 of one moment are one piece of news."""
    limit = limit_of()
    for _ in range(30):
        limit.dropped(began=1.0, now=1.1)
    assert limit.texts == 288
    limit.dropped(began=1.1, now=1.2)
    assert limit.texts == 259


@pytest.mark.parametrize(("carried", "left"), [(400, 288), (200, 200), (20, 160), (0, 160)])
def test_a_queue_at_the_server_cuts_it_to_what_the_server_carried_at_most_by_half(carried: int, left: int) -> None:
    """Of 320 texts; it did so many while a call had its time, so that more in flight are late for certain."""
    limit = limit_of()
    limit.dropped(began=1.0, now=1.1, carried_texts=carried)
    limit.dropped(began=1.0, now=1.1, carried_texts=carried)
    assert limit.texts == left


def test_the_first_calls_say_what_a_call_is() -> None:
    """Ten calls of what was assumed would be several times what is sent."""
    limit = limit_of()
    limit.answered(texts=8, tokens=400, ms=20.0, in_flight=8)
    assert (limit.texts, limit.tokens) == (80, 4000)
    limit.answered(texts=16, tokens=800, ms=20.0, in_flight=8)
    assert (limit.texts, limit.tokens) == (120, 6000)


def test_a_call_is_slow_from_half_as_long_again_as_its_size_takes() -> None:
    """Where that is not known, any time is long."""
    limit = limit_of()
    assert limit.is_slow(tokens=3200, ms=1.0)
    answer(limit, 20.0)
    assert [limit.is_slow(tokens=3200, ms=ms) for ms in (30.0, 30.1)] == [False, True]
    assert limit.is_slow(tokens=100, ms=1.0)


@given(
    steps=st.lists(
        st.tuples(st.integers(1, 100), st.integers(1, 50_000), st.floats(0, 1e5), st.integers(0, 2000), st.booleans()),
        max_size=200,
    ),
    most_texts=st.integers(1, 2000),
    most_tokens=st.integers(16, 10**6),
)
def test_it_is_never_above_what_is_configured_nor_below_one(
    steps: list[tuple[int, int, float, int, bool]], most_texts: int, most_tokens: int
) -> None:
    """Whatever happens, something may be in flight, and never more than is allowed."""
    limit = limit_of(most_texts, most_tokens)
    for moment, (texts, tokens, ms, in_flight, drops) in enumerate(steps):
        if drops:
            limit.dropped(moment, moment)
        else:
            limit.answered(texts=texts, tokens=tokens, ms=ms, in_flight=in_flight)
        assert 1 <= limit.texts <= most_texts
        assert 1 <= limit.tokens <= most_tokens


SERVERS = {
    "a GPU": (4.0, 0.25, 64, 100.0, 4.0),
    "large batches": (20.0, 0.05, 256, 120.0, 4.0),
    "a CPU": (1.0, 4.0, 8, 2000.0, 40.0),
}


@pytest.mark.parametrize("name", SERVERS)
def test_under_overload_it_keeps_goodput_that_a_fixed_limit_loses(name: str) -> None:
    """At 1.5 times the capacity, with work that a server drops when its client goes away; both check the time left."""
    base_ms, text_ms, batch, deadline_ms, seconds = SERVERS[name]
    load = Load(1.5, deadline_ms, seconds)
    ours = goodput(BatchingServer(base_ms, text_ms, batch), Adaptive(), load)
    theirs = goodput(BatchingServer(base_ms, text_ms, batch), Fixed(), load)
    assert ours > theirs
    assert ours > 0.6


@pytest.mark.parametrize("name", ["a GPU", "large batches"])
def test_under_steady_overload_it_does_not_follow_the_queue_that_it_lets_stand(name: str) -> None:
    """At four times the capacity for half a minute: it would grow until calls are late, be cut, and grow again."""
    base_ms, text_ms, batch, deadline_ms, _ = SERVERS[name]
    assert goodput(BatchingServer(base_ms, text_ms, batch), Adaptive(), Load(4.0, deadline_ms, 20.0)) > 0.7


def test_below_capacity_it_costs_nothing() -> None:
    """At half of the capacity both answer the same."""
    load = Load(0.5, 100.0, 4.0)
    ours = goodput(BatchingServer(4.0, 0.25, 64), Adaptive(), load)
    assert ours == pytest.approx(goodput(BatchingServer(4.0, 0.25, 64), Fixed(), load), abs=0.02)


def test_the_check_when_room_is_given_is_what_saves_an_overloaded_server() -> None:
    """At four times the capacity, calls that could not come back in time take the room of those that could."""
    load = Load(4.0, 100.0, 3.0)
    checked = goodput(BatchingServer(4.0, 0.25, 64), Adaptive(), load)
    unchecked = goodput(BatchingServer(4.0, 0.25, 64), Adaptive(), load, checked=False)
    assert unchecked < 0.2
    assert checked > 0.4
