"""Seats, on virtual time."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cascade.errors import RequestError, RequestFault
from cascade.guard.admission import Admission
from cascade.guard.quota import Quota, TokenBucket
from cascade.guard.seat import Asked, Bounds, Seat
from cascade.testing.clock import run_virtual
from cascade.types import Lane, Verdict

_LONG = 1000.0


@dataclass
class _Told:
    """What admission told: each verdict with its lane, tenant and wait."""

    all: list[tuple[Verdict, Lane, str | None, float]]

    @property
    def verdicts(self) -> list[Verdict]:
        return [verdict for verdict, *_ in self.all]


def _admission(
    most: int = 1, most_waiting: int = 10, most_long: int = 1, quotas: dict[str, Quota] | None = None
) -> tuple[Admission, _Told]:
    told = _Told([])
    admission = Admission(
        Bounds(most, most_waiting, most_long, _LONG),
        asyncio.get_running_loop().time,
        quotas=quotas,
        settled=lambda *what: told.all.append(what),
    )
    return admission, told


def _asked(tenant: str | None = None, priority: int = 0, cost: float = 1.0, until: float = 100.0) -> Asked:
    return Asked(tenant, priority, cost, until)


async def _serve(
    admission: Admission, asked: Asked, seconds: float, served: list[str] | None = None, name: str = ""
) -> Verdict:
    """Ask, wait for the turn, work for some time, and leave; return the verdict."""
    seat = admission.ask(asked)
    try:
        if await seat.settled():
            if served is not None:
                served.append(name)
            await asyncio.sleep(seconds)
    finally:
        admission.leave(seat)
    assert seat.verdict is not None
    return seat.verdict


def virtual(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """Run a test on virtual time."""

    def run() -> None:
        run_virtual(test())

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


@virtual
async def test_a_free_seat_is_had_at_once() -> None:
    """No turn is waited for, and leaving gives it back."""
    admission, told = _admission(most=2)
    one, two = admission.ask(_asked()), admission.ask(_asked())
    assert one.is_held
    assert two.is_held
    assert (admission.in_flight, admission.held(Lane.SHORT), one.turn) == (2, 2, None)
    admission.leave(one)
    admission.leave(two)
    assert admission.in_flight == 0
    assert told.all == [(Verdict.ADMITTED, Lane.SHORT, None, 0.0)] * 2


@virtual
async def test_who_waits_is_seated_when_one_leaves_and_the_wait_is_told() -> None:
    """The earliest deadline of a tenant's first class has the first turn."""
    admission, told = _admission()
    served: list[str] = []
    asked = {"late": _asked(until=50.0), "early": _asked(until=20.0), "second class": _asked(priority=1, until=5.0)}
    work = [_serve(admission, _asked(), 1.0, served, "first")]
    work += [_serve(admission, what, 1.0, served, name) for name, what in asked.items()]
    assert await asyncio.gather(*work) == [Verdict.ADMITTED] + [Verdict.WAITED] * 3
    assert served == ["first", "early", "late", "second class"]
    assert [round(wait, 6) for *_, wait in told.all] == [0.0, 1.0, 2.0, 3.0]
    assert admission.oldest_wait_s() == 0.0


@virtual
async def test_who_cannot_begin_in_time_is_told_so_then_and_not_later() -> None:
    """Expired work does not wait for a seat to become free, and takes no seat when one does."""
    admission, _ = _admission()
    holder = admission.ask(_asked())
    waiting = asyncio.create_task(_serve(admission, _asked(until=0.5), 1.0))
    await asyncio.sleep(0.25)
    assert admission.oldest_wait_s() == 0.25
    assert await waiting is Verdict.EXPIRED
    assert asyncio.get_running_loop().time() == 0.5
    assert admission.ask(_asked(until=0.5)).verdict is Verdict.EXPIRED
    admission.leave(holder)
    assert (admission.in_flight, admission.waiting(Lane.SHORT)) == (0, 0)


@virtual
async def test_work_that_would_come_too_late_by_what_others_took_is_not_begun() -> None:
    """Where requests take half a second, one with less left is answered without stages, so that others are in time."""
    admission, _ = _admission()
    for _ in range(16):
        await _serve(admission, _asked(), 0.5)
    now = asyncio.get_running_loop().time()
    holder = admission.ask(_asked(until=1e9))
    hopeless = asyncio.create_task(_serve(admission, _asked(until=now + 0.6), 0.5))
    hopeful = asyncio.create_task(_serve(admission, _asked(until=now + 0.9), 0.5))
    await asyncio.sleep(0.3)
    admission.leave(holder)
    assert await hopeless is Verdict.EXPIRED
    assert await hopeful is Verdict.WAITED
    # A seat that is free is given to whoever comes: what is known of the time may be old.
    assert admission.ask(_asked(until=now)).verdict is Verdict.ADMITTED


@virtual
async def test_what_is_learnt_while_a_request_waits_counts_when_its_turn_comes() -> None:
    """It waited for what it thought was time enough; by then requests are known to take longer."""
    admission, _ = _admission(most=17, most_waiting=20, most_long=17)
    holders = [admission.ask(_asked()) for _ in range(17)]
    early = [admission.ask(_asked(until=0.6)) for _ in range(15)]
    last = admission.ask(_asked(until=0.8))
    await asyncio.sleep(0.5)
    for seat in holders[:16]:
        admission.leave(seat)
    assert {seat.verdict for seat in early} == {Verdict.WAITED}
    assert (last.verdict, admission.in_flight) == (Verdict.EXPIRED, 16)


@virtual
async def test_a_full_queue_turns_away_the_worst_of_the_tenant_that_has_most() -> None:
    """One tenant cannot fill it: another's request takes the place of its latest one."""
    admission, told = _admission(most_waiting=2)
    holder = admission.ask(_asked())
    early, late = (admission.ask(_asked("a", until=until)) for until in (10.0, 20.0))
    other = admission.ask(_asked("b", until=30.0))
    assert (late.verdict, early.verdict, other.verdict) == (Verdict.DISPLACED, None, None)
    assert not await late.settled()
    assert admission.ask(_asked("b", until=40.0)).verdict is Verdict.DISPLACED
    assert admission.waiting(Lane.SHORT) == 2
    for seat in (holder, early, other):
        admission.leave(seat)
    assert admission.in_flight == 0
    assert Counter(told.verdicts)[Verdict.DISPLACED] == 2


@virtual
async def test_where_none_may_wait_a_request_without_a_seat_is_turned_away() -> None:
    """Zero is a bound."""
    admission, _ = _admission(most_waiting=0)
    admission.ask(_asked())
    assert admission.ask(_asked()).verdict is Verdict.DISPLACED
    assert admission.ask(_asked(cost=_LONG)).verdict is Verdict.DISPLACED


@virtual
async def test_long_requests_have_seats_of_their_own_and_no_others() -> None:
    """Long ones never hold more than theirs, short ones go past those that wait, and theirs are theirs first."""
    admission, _ = _admission(most=3, most_long=1)
    long = [admission.ask(_asked(cost=_LONG)) for _ in range(2)]
    assert [seat.verdict for seat in long] == [Verdict.ADMITTED, None]
    short = [admission.ask(_asked()) for _ in range(3)]
    assert [seat.verdict for seat in short] == [Verdict.ADMITTED, Verdict.ADMITTED, None]
    assert (admission.waiting(Lane.LONG), admission.waiting(Lane.SHORT)) == (1, 1)
    admission.leave(short[0])  # the long lane has what it may, so a short one is next
    assert (long[1].verdict, short[2].verdict) == (None, Verdict.WAITED)
    admission.leave(long[0])
    assert (long[1].verdict, admission.held(Lane.LONG)) == (Verdict.WAITED, 1)


@virtual
async def test_a_waiter_that_goes_away_frees_its_place_and_one_that_was_just_seated_its_seat() -> None:
    """Cancelling in the queue is told as abandoned; cancelling in the step of the grant gives the seat on."""
    admission, told = _admission(most_waiting=2)
    holder = admission.ask(_asked())
    gone = asyncio.create_task(_serve(admission, _asked(), 1.0))
    granted = asyncio.create_task(_serve(admission, _asked(), 1.0))
    await asyncio.sleep(0)
    gone.cancel()
    await asyncio.sleep(0)
    assert admission.waiting(Lane.SHORT) == 1
    admission.leave(holder)
    granted.cancel()
    await asyncio.gather(gone, granted, return_exceptions=True)
    assert (admission.in_flight, admission.waiting(Lane.SHORT)) == (0, 0)
    assert told.verdicts == [Verdict.ADMITTED, Verdict.ABANDONED, Verdict.WAITED]


@virtual
async def test_h6_closing_settles_all_that_wait_and_whoever_comes() -> None:
    """Nobody is left waiting, and who has a seat keeps it."""
    admission, _ = _admission()
    holder = admission.ask(_asked())
    waiting = asyncio.create_task(_serve(admission, _asked(), 1.0))
    await asyncio.sleep(0)
    admission.close()
    assert await waiting is Verdict.CLOSED
    assert admission.ask(_asked()).verdict is Verdict.CLOSED
    assert (holder.verdict, admission.in_flight) == (Verdict.ADMITTED, 1)


def _refused(admission: Admission, asked: Asked) -> RequestError:
    with pytest.raises(RequestError) as refused:
        admission.ask(asked)
    assert refused.value.fault is RequestFault.OVER_QUOTA
    return refused.value


@virtual
async def test_a_tenant_beyond_its_requests_a_second_is_told_when_to_come_back() -> None:
    """Two at once and then one in two seconds; others are not held to it."""
    clock = asyncio.get_running_loop().time
    admission, told = _admission(most=9, quotas={"a": Quota(bucket=TokenBucket(0.5, 2, clock))})
    for _ in range(2):
        admission.leave(admission.ask(_asked("a")))
    assert _refused(admission, _asked("a")).retry_after_s == 2
    assert admission.ask(_asked("b")).is_held
    await asyncio.sleep(2.0)
    assert admission.ask(_asked("a")).is_held
    assert told.verdicts.count(Verdict.OVER_RATE) == 1


@virtual
async def test_a_tenant_has_no_more_requests_at_a_time_than_its_quota() -> None:
    """Those that wait count too, and leaving makes room."""
    admission, told = _admission(quotas={"a": Quota(concurrent=2), "none": Quota(concurrent=0)})
    held, waits = admission.ask(_asked("a")), admission.ask(_asked("a"))
    assert _refused(admission, _asked("a")).retry_after_s == 1
    admission.leave(waits)
    admission.leave(held)
    assert admission.ask(_asked("a")).is_held
    _refused(admission, _asked("none"))
    assert told.verdicts.count(Verdict.OVER_CONCURRENT) == 2


@virtual
async def test_under_saturation_each_tenant_gets_its_weights_share() -> None:
    """Three to one by weight, whatever each sends: also where the lighter one sends four times as much."""
    admission, _ = _admission(most=2, most_waiting=1000, quotas={"a": Quota(weight=3.0), "b": Quota(weight=1.0)})
    served: list[str] = []
    work = [_serve(admission, _asked("b"), 0.01, served, "b") for _ in range(400)]
    work += [_serve(admission, _asked("a"), 0.01, served, "a") for _ in range(100)]
    await asyncio.gather(*work)
    assert served[2:102].count("a") == 75


@virtual
async def test_under_overload_seats_are_spent_on_what_is_in_time_alone() -> None:
    """At four times what the seats can do, they do all they can, three of four for the tenant of three times the weight."""
    admission, _ = _admission(most=8, most_waiting=256, most_long=8, quotas={"a": Quota(weight=3.0), "b": Quota()})
    loop, drawn, good = asyncio.get_running_loop(), Random(7), Counter[str]()  # noqa: S311

    async def one(tenant: str) -> None:
        end = loop.time() + 0.3
        seat = admission.ask(_asked(tenant, until=end))
        try:
            if await seat.settled():
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(end - loop.time()):
                        await asyncio.sleep(0.1 * drawn.uniform(0.5, 1.5))
                        good[tenant] += 1
        finally:
            admission.leave(seat)
        assert loop.time() <= end + 1e-6

    async with asyncio.TaskGroup() as group:
        while loop.time() < 10.0:
            await asyncio.sleep(drawn.expovariate(4 * 8 / 0.1))
            group.create_task(one(drawn.choice("ab")))
    assert good.total() >= 0.95 * 8 / 0.1 * 10.0
    assert 2.7 <= good["a"] / good["b"] <= 3.5


@virtual
async def test_tenants_without_a_quota_cannot_gain_by_making_names_up() -> None:
    """A thousand names share 32 flows, so that a tenant with one has at least a thirty-third of what is served."""
    admission, _ = _admission(most=1, most_waiting=5000, quotas={"honest": Quota()})
    served: list[str] = []
    work = [_serve(admission, _asked(f"made-up-{number}"), 0.01, served, "made up") for number in range(1000)]
    work += [_serve(admission, _asked("honest"), 0.01, served, "honest") for _ in range(10)]
    await asyncio.gather(*work)
    assert served[:340].count("honest") >= 10


_STEPS = st.lists(
    st.tuples(
        st.integers(0, 30),  # milliseconds until it comes
        st.sampled_from(("a", "b", "c", None)),
        st.integers(0, 2),  # class
        st.sampled_from((1.0, 5.0, _LONG)),
        st.integers(0, 80),  # milliseconds until it must begin
        st.integers(0, 40),  # milliseconds that it takes
        st.none() | st.integers(0, 60),  # milliseconds until its client goes away
    ),
    max_size=40,
)


@settings(deadline=None)
@given(_STEPS, st.integers(1, 3), st.integers(0, 4), st.none() | st.integers(0, 200))
def test_no_request_is_lost_or_settled_twice_and_all_bounds_hold(
    steps: list[tuple[int, str | None, int, float, int, int, int | None]],
    most: int,
    most_waiting: int,
    closes_ms: int | None,
) -> None:
    """Whatever comes, goes away or is too late: one verdict each, none begun late, and nothing left at the end."""

    async def play() -> None:
        clock = asyncio.get_running_loop().time
        quotas = {"a": Quota(weight=2.0, concurrent=5)}
        admission, told = _admission(most, most_waiting, 1, quotas)
        seats: list[Seat] = []

        async def one(
            at: int, tenant: str | None, priority: int, cost: float, until_ms: int, takes: int, leaves: int | None
        ) -> None:
            await asyncio.sleep(at / 1000)
            until = clock() + until_ms / 1000
            try:
                seat = admission.ask(_asked(tenant, priority, cost, until))
            except RequestError:
                return
            seats.append(seat)
            try:
                async with asyncio.timeout(None if leaves is None else leaves / 1000):
                    if await seat.settled():
                        assert seat.verdict is Verdict.ADMITTED or clock() <= until + 1e-9
                        assert admission.in_flight <= most
                        assert admission.held(Lane.LONG) <= 1
                        await asyncio.sleep(takes / 1000)
            except TimeoutError:
                pass
            finally:
                assert admission.waiting(Lane.SHORT) <= most_waiting
                assert admission.waiting(Lane.LONG) <= most_waiting
                admission.leave(seat)

        async def close() -> None:
            if closes_ms is not None:
                await asyncio.sleep(closes_ms / 1000)
                admission.close()

        await asyncio.gather(close(), *(one(*step) for step in steps))
        assert len(told.all) == len(steps)
        assert all(seat.verdict is not None for seat in seats)
        assert (admission.in_flight, admission.held(Lane.SHORT), admission.held(Lane.LONG)) == (0, 0, 0)
        assert (admission.waiting(Lane.SHORT), admission.waiting(Lane.LONG)) == (0, 0)
        assert (quotas["a"].here, admission.oldest_wait_s()) == (0, 0.0)

    run_virtual(play())


def test_a_body_of_many_queries_holds_their_seats_and_nothing_begins_until_they_are_few_enough() -> None:
    """Of two seats one is free: a body of five takes both, though one is held; then three are, and the next waits for two."""

    async def play() -> None:
        admission, _ = _admission(most=2)
        first = admission.ask(_asked())
        wide = admission.ask(Asked(None, 0, 5.0, 100.0, queries=5, seats=5))
        assert wide.is_held
        assert (admission.in_flight, admission.held(Lane.SHORT)) == (3, 3)
        waits = admission.ask(_asked())
        admission.leave(first)
        assert not waits.is_held
        admission.leave(wide)
        assert waits.is_held
        admission.leave(waits)
        assert admission.in_flight == 0

    run_virtual(play())


def test_a_body_of_many_queries_that_waited_gets_its_turn() -> None:
    """It needs one free seat to begin, so that smaller ones do not keep it waiting."""

    async def play() -> None:
        admission, told = _admission(most=2)
        held = [admission.ask(_asked()) for _ in range(2)]
        wide = admission.ask(Asked(None, 0, 5.0, 100.0, seats=5))
        small = admission.ask(_asked())
        admission.leave(held[0])
        assert (wide.is_held, small.is_held) == (True, False)
        admission.leave(held[1])
        assert not small.is_held
        admission.leave(wide)
        assert small.is_held
        assert told.verdicts == [Verdict.ADMITTED, Verdict.ADMITTED, Verdict.WAITED, Verdict.WAITED]

    run_virtual(play())


@pytest.mark.parametrize("cost", [16.0, 320.0])
def test_a_tenant_of_bodies_of_many_short_queries_does_not_starve_another(cost: float) -> None:
    """Eight seats for the bytes of less than one request: both tenants get about as much of the seats' time."""

    async def play() -> dict[str, float]:
        loop = asyncio.get_running_loop()
        admission, _ = _admission(8, 200, 8, {"wide": Quota(), "narrow": Quota()})
        got = {"wide": 0.0, "narrow": 0.0}

        async def one(tenant: str, seats: int, cost: float) -> None:
            asked = Asked(tenant, 0, cost, loop.time() + 1.0, queries=seats, seats=seats)
            if await _serve(admission, asked, 0.1) in {Verdict.ADMITTED, Verdict.WAITED}:
                got[tenant] += seats

        tasks = []
        for _ in range(200):
            tasks.append(asyncio.create_task(one("wide", 8, cost)))
            tasks += [asyncio.create_task(one("narrow", 1, 40.0)) for _ in range(4)]
            await asyncio.sleep(0.05)
        await asyncio.gather(*tasks)
        return got

    got = run_virtual(play())
    assert got["narrow"] > 400
    assert got["wide"] == pytest.approx(got["narrow"], rel=0.1)


def test_a_quota_is_charged_for_each_query() -> None:
    """Three queries in one body are three of its tenant's requests, at a time and at the rate."""

    async def play() -> None:
        clock = asyncio.get_running_loop().time
        quota = Quota(bucket=TokenBucket(1.0, 4, clock), concurrent=4)
        admission, _ = _admission(most=9, quotas={"acme": quota})
        seat = admission.ask(Asked("acme", 0, 1.0, 100.0, queries=3))
        assert quota.here == 3
        with pytest.raises(RequestError, match="at a time"):
            admission.ask(Asked("acme", 0, 1.0, 100.0, queries=2))
        admission.leave(seat)
        assert quota.here == 0
        with pytest.raises(RequestError, match="a second"):
            admission.ask(Asked("acme", 0, 1.0, 100.0, queries=2))
        admission.leave(admission.ask(Asked("acme", 0, 1.0, 100.0)))

    run_virtual(play())
