"""A stage and its guards: what a failing server costs, and that a well one is left alone."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from cascade.decision import DegradedReason
from cascade.errors import StageBreakerOpen, StageError, StageOverloaded, StageTimeout, StageTooLate
from cascade.guard.deadline import Deadline
from cascade.guard.events import GuardEvents
from cascade.stages.http import HttpReranker
from cascade.stages.probe import probe
from cascade.testing.clock import run_virtual
from cascade.testing.upstream import FakeTei
from cascade.types import BreakerState

from .arrange import running, score, tei_spec

OPEN, HALF_OPEN, CLOSED = BreakerState.OPEN, BreakerState.HALF_OPEN, BreakerState.CLOSED


async def fails(stage: HttpReranker, kind: type[StageError], within_ms: float = 100.0) -> StageError:
    """Return the error of a round that fails so."""
    with pytest.raises(kind) as caught:
        await score(stage, "q", ["a"], within_ms=within_ms)
    return caught.value


def test_22_b13_a_black_hole_costs_five_requests_a_budget_each_and_the_rest_nothing() -> None:
    """It accepts, never answers, and is healthy by its health route; it is not tried again, and comes back by itself."""
    states: list[BreakerState] = []

    async def play() -> None:
        server = FakeTei()
        async with running(server, tei_spec(), budget_ms=100, events=GuardEvents(breaker=states.append)) as stage:
            for _ in range(20):
                await score(stage, "q", ["a"])
            server.hangs, before = True, len(server.posts)
            for _ in range(5):
                error = await fails(stage, StageTimeout)
                assert error.elapsed_ms == pytest.approx(100)
            for _ in range(50):
                error = await fails(stage, StageBreakerOpen)
                assert (error.code, error.elapsed_ms, error.sent) == ("breaker_open", 0.0, 0)
            assert len(server.posts) == before + 5
            assert server.cancelled == 5
            server.hangs = False
            await asyncio.sleep(5)
            for _ in range(3):
                await score(stage, "q", ["a"], within_ms=100)
            assert stage.guarded.breaker is CLOSED
        assert states == [OPEN, HALF_OPEN, CLOSED]

    run_virtual(play())


def test_b7_a_server_that_says_429_all_the_time_is_left_alone() -> None:
    """Sustained, it opens; no request waits for a server that has no room."""

    async def play() -> None:
        server = FakeTei()
        async with running(server, tei_spec()) as stage:
            server.script = [httpx.Response(429)] * 1000
            for _ in range(5):
                await fails(stage, StageOverloaded)
            await fails(stage, StageBreakerOpen)
            assert len(server.posts) == 5

    run_virtual(play())


def test_callers_in_a_hurry_do_not_open_it_for_others() -> None:
    """Given up after less than half of the budget, a round says nothing of the server."""

    async def play() -> None:
        async with running(FakeTei(delay_ms=60), tei_spec(), budget_ms=100) as stage:
            for _ in range(50):
                await fails(stage, StageTimeout, within_ms=40)
            assert stage.guarded.breaker is CLOSED

    run_virtual(play())


def test_patient_callers_open_it_on_a_black_hole_whoever_is_in_a_hurry_between_them() -> None:
    """Rounds of callers in a hurry say nothing, and break no row: five others within the window are enough."""

    async def play() -> None:
        server = FakeTei(hangs=True)
        async with running(server, tei_spec(), budget_ms=100) as stage:
            for _ in range(5):
                assert stage.guarded.breaker is CLOSED
                await fails(stage, StageTimeout, within_ms=40)
                await fails(stage, StageTimeout, within_ms=100)
            await fails(stage, StageBreakerOpen, within_ms=40)

    run_virtual(play())


def test_clients_that_give_up_on_a_black_hole_open_it_all_the_same() -> None:
    """They went away before the deadline, but after half of the budget."""

    async def play() -> None:
        server = FakeTei(hangs=True)
        async with running(server, tei_spec(), budget_ms=100) as stage:
            for _ in range(5):
                round_ = asyncio.create_task(score(stage, "q", ["a"], within_ms=100))
                await asyncio.sleep(0.06)
                round_.cancel()
                await asyncio.gather(round_, return_exceptions=True)
            await fails(stage, StageBreakerOpen)
            assert server.cancelled == 5

    run_virtual(play())


@pytest.mark.parametrize(("slow_ms", "state"), [(49.9, OPEN), (50.1, CLOSED)])
def test_b6_slow_calls_count_as_failures_from_where_it_is_configured(slow_ms: float, state: BreakerState) -> None:
    """All are answered, each after 50 ms."""

    async def play() -> None:
        async with running(FakeTei(delay_ms=50), tei_spec(breaker={"slow_ms": slow_ms})) as stage:
            for _ in range(5):
                await score(stage, "q", ["a"])
            assert stage.guarded.breaker is state

    run_virtual(play())


def test_a_round_of_blanks_closes_nothing() -> None:
    """Nothing reached the server, so nothing is known of it."""

    async def play() -> None:
        server = FakeTei()
        async with running(server, tei_spec()) as stage:
            server.script = [httpx.Response(401)] * 5
            for _ in range(5):
                with pytest.raises(StageError):
                    await score(stage, "q", ["a"])
            await asyncio.sleep(10)
            for _ in range(3):
                assert (await score(stage, "q", [" "])).scores == (None,)
            assert stage.guarded.breaker is HALF_OPEN

    run_virtual(play())


def test_a_call_that_got_room_too_late_does_not_leave() -> None:
    """Calls take 20 ms; one that waited until 10 are left gives its room on at once."""

    async def play() -> None:
        server = FakeTei(delay_ms=20)
        async with running(server, tei_spec(max_in_flight_texts=1)) as stage:
            for _ in range(10):
                await score(stage, "q", ["a"])
            server.seen.clear()
            first = asyncio.create_task(score(stage, "q", ["a"]))
            await asyncio.sleep(0)
            late = await fails(stage, StageTooLate, within_ms=30)
            assert (late.code, late.sent, late.reason) == ("no_time", 0, "deadline_too_short")
            assert late.elapsed_ms == pytest.approx(20)
            await first
            assert len(server.posts) == 1
            assert stage.guarded.breaker is CLOSED

    run_virtual(play())


def test_the_cost_tells_how_long_a_round_waited_for_room() -> None:
    """None where no call had to wait."""

    async def play() -> None:
        async with running(FakeTei(delay_ms=20), tei_spec(max_in_flight_texts=1)) as stage:
            first, second = await asyncio.gather(score(stage, "q", ["a"]), score(stage, "q", ["b"]))
            assert first.cost.room_ms is None
            assert second.cost.room_ms == pytest.approx(20)

    run_virtual(play())


def test_a_round_that_failed_tells_how_long_it_waited_for_room() -> None:
    """Whether its time was over in the line, when it came to its turn, or as another of its calls had left; else None."""

    async def play() -> None:
        async with running(FakeTei(delay_ms=20), tei_spec(max_in_flight_texts=1)) as stage:
            for _ in range(10):
                await score(stage, "q", ["a"])
            first = asyncio.create_task(score(stage, "q", ["a"]))
            await asyncio.sleep(0)
            in_line = await fails(stage, StageTimeout, within_ms=15)
            assert (in_line.code, in_line.sent) == ("waiting_for_room", 0)
            assert in_line.room_ms == pytest.approx(15)
            await first
            first = asyncio.create_task(score(stage, "q", ["a"]))
            await asyncio.sleep(0)
            at_its_turn = await fails(stage, StageTooLate, within_ms=30)
            assert at_its_turn.room_ms == pytest.approx(20)
            await first
        async with running(FakeTei(hangs=True), tei_spec(max_in_flight_texts=1)) as stage:
            with pytest.raises(StageTimeout) as half:
                await score(stage, "q", ["a", "b"], within_ms=100)
            assert (half.value.code, half.value.sent) == ("deadline", 1)
            assert half.value.room_ms == pytest.approx(100)
            alone = await fails(stage, StageTimeout)
            assert (alone.sent, alone.room_ms) == (1, None)

    run_virtual(play())


def test_guards_say_how_they_stand() -> None:
    """Limits, what is in flight in texts and tokens, and who waits."""

    async def play() -> None:
        async with running(FakeTei(delay_ms=20), tei_spec(max_in_flight_texts=2, chunk_texts=2)) as stage:
            rounds = [asyncio.create_task(score(stage, "q", ["a", "b"])) for _ in range(3)]
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            now = stage.guarded
            assert (now.breaker, now.limit_texts, now.in_flight_texts, now.waiting_calls) == (CLOSED, 2, 2, 2)
            assert 0 < now.in_flight_tokens <= now.limit_tokens
            assert not stage.breaker.refuses
            await asyncio.gather(*rounds)
            assert (stage.guarded.in_flight_texts, stage.guarded.in_flight_tokens) == (0, 0)

    run_virtual(play())


def test_a_stage_without_adaptive_limit_keeps_to_the_configured_one() -> None:
    """Whatever the server says."""

    async def play() -> None:
        server = FakeTei()
        async with running(server, tei_spec(adaptive_limit=False, max_in_flight_texts=100)) as stage:
            server.script = [httpx.Response(429)] * 4
            for _ in range(4):
                await fails(stage, StageOverloaded)
            assert (stage.guarded.limit_texts, stage.guarded.limit_tokens) == (100, 1_000_000)

    run_virtual(play())


@pytest.mark.parametrize("failure", [httpx.ConnectError("m"), httpx.Response(502)])
def test_a_server_that_answers_after_it_was_lost_has_returned(failure: httpx.Response | Exception) -> None:
    """Told once for each time; a server that was never lost has not returned."""

    async def play() -> None:
        server = FakeTei()
        async with running(server, tei_spec()) as stage:
            returned = asyncio.create_task(stage.returned())
            await score(stage, "q", ["a"])
            assert not returned.done()
            server.script = [failure]
            with pytest.raises(StageError):
                await score(stage, "q", ["a"])
            assert not returned.done()
            await score(stage, "q", ["a"])
            await asyncio.sleep(0)
            assert returned.done()
            again = asyncio.create_task(stage.returned())
            await score(stage, "q", ["a"])
            assert not again.done()
            again.cancel()

    run_virtual(play())


def test_questions_of_our_own_to_a_server_that_is_away_open_no_breaker() -> None:
    """It is asked until it answers: what a probe meets is told each time, and the first request leaves."""

    async def play() -> None:
        server = FakeTei()
        server.script = [httpx.ConnectError("down")] * 20
        async with running(server, tei_spec(retries=0)) as stage:
            clock = asyncio.get_running_loop().time
            for _ in range(20):
                found = await probe(stage, Deadline.after_ms(1000, clock))
                assert (found.code, found.reason) == ("refused", DegradedReason.STAGE_UNREACHABLE)
            assert stage.guarded.breaker is CLOSED
            assert (await score(stage, "q", ["a"])).scores

    run_virtual(play())
