"""A call is made again where that may help: once, in time, within the budget, and never on the happy path."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest

from cascade.errors import StageError, StageOverloaded, StageTimeout, StageUnreachable
from cascade.guard.events import GuardEvents
from cascade.stages.http import HttpReranker
from cascade.testing.clock import run_virtual
from cascade.testing.upstream import FakeTei
from cascade.types import RetryOutcome

from .arrange import running, score, tei_spec


@dataclass
class Told:
    """What was told of retries."""

    retries: list[RetryOutcome] = field(default_factory=list)


def play(
    then: Callable[[HttpReranker, FakeTei, Told], Awaitable[None]],
    *,
    earned: int = 10,
    delay_ms: float = 20.0,
    **spec: Any,
) -> list[RetryOutcome]:
    """Run a stage that has had so many calls answered, and return what was told of retries."""
    told, server = Told(), FakeTei(delay_ms=delay_ms)

    async def whole() -> None:
        events = GuardEvents(retried=told.retries.append)
        async with running(server, tei_spec(**spec), events=events) as stage:
            for _ in range(earned):
                await score(stage, "q", ["a"])
            server.seen.clear()
            await then(stage, server, told)

    run_virtual(whole())
    return told.retries


@pytest.mark.parametrize(
    "failure",
    [httpx.ConnectError("m"), httpx.ReadError("m"), httpx.Response(500), httpx.Response(502), httpx.Response(503),
     httpx.Response(429), httpx.Response(503, headers={"retry-after": "0"})],
    ids=["refused", "cut", "500", "502", "503", "429", "503 with Retry-After"],
)  # fmt: skip
def test_31_what_may_pass_is_tried_again_with_another_id(failure: httpx.Response | Exception) -> None:
    """The second try is answered, so the round counts; it asks for the same, under an id of its own."""

    async def then(stage: HttpReranker, server: FakeTei, told: Told) -> None:
        server.script = [failure]
        scored = await score(stage, "q", ["a", "b"])
        assert None not in scored.scores
        assert scored.cost.calls == 2
        first, second = server.posts
        assert first.body == second.body
        assert first.headers["x-request-id"] != second.headers["x-request-id"]

    assert play(then) == [RetryOutcome.ANSWERED]


def test_only_the_chunk_that_failed_is_sent_again() -> None:
    """Its siblings' scores stand."""

    async def then(stage: HttpReranker, server: FakeTei, told: Told) -> None:
        server.script = [None, httpx.Response(500), None]
        await score(stage, "q", ["a", "b", "c"])
        assert sorted(seen.body["texts"][0] for seen in server.posts) == sorted(["a", "b", "c", "b"])

    play(then, chunk_texts=1)


def test_no_pause_and_no_retry_where_all_is_well() -> None:
    """A healthy server is asked once a call, and nothing is told of retries."""

    async def then(stage: HttpReranker, server: FakeTei, told: Told) -> None:
        await score(stage, "q", ["a"])
        assert len(server.posts) == 1

    assert play(then) == []


def test_b1_without_budget_a_failure_is_final() -> None:
    """Nine answered calls pay for no retry: the next stage is asked at once."""

    async def then(stage: HttpReranker, server: FakeTei, told: Told) -> None:
        server.script = [httpx.Response(500)]
        with pytest.raises(StageError, match="status_500"):
            await score(stage, "q", ["a"])
        assert len(server.posts) == 1

    assert play(then, earned=9) == [RetryOutcome.NO_BUDGET]


def test_b1_a_server_that_fails_every_call_is_asked_a_tenth_more_at_most() -> None:
    """A retry storm does not begin: after a hundred good calls, ten retries and then none."""

    async def then(stage: HttpReranker, server: FakeTei, told: Told) -> None:
        server.script = [httpx.ConnectError("m")] * 1000
        for _ in range(60):
            with pytest.raises(StageUnreachable):
                await score(stage, "q", ["a"])
        assert len(server.posts) == 60 + 10

    never_open = {"consecutive": 10_000, "min_calls": 10_000}
    retries = play(then, earned=100, breaker=never_open)
    assert retries.count(RetryOutcome.FAILED) == 10
    assert retries.count(RetryOutcome.NO_BUDGET) == 50


@pytest.mark.parametrize(("within_ms", "calls"), [(50.0, 2), (39.0, 1)])
def test_b1_no_retry_where_the_time_left_is_less_than_such_a_call_takes(within_ms: float, calls: int) -> None:
    """A call takes 20 ms; the failure came after 20 and the pause is 10: 50 ms are just enough, 39 are not."""

    async def then(stage: HttpReranker, server: FakeTei, told: Told) -> None:
        server.script = [httpx.Response(500)]
        began = asyncio.get_running_loop().time()
        ended = await asyncio.gather(score(stage, "q", ["a"], within_ms=within_ms + 0.5), return_exceptions=True)
        took_ms = (asyncio.get_running_loop().time() - began) * 1000
        assert took_ms == pytest.approx(50.0 if calls == 2 else 20.0)  # at once, not at the deadline
        assert isinstance(ended[0], StageError) is (calls == 1)
        assert len(server.posts) == calls

    assert play(then) == [RetryOutcome.ANSWERED if calls == 2 else RetryOutcome.NO_TIME]


def test_b1_a_server_without_room_is_not_asked_again_on_a_guess() -> None:
    """How long a call takes is not known yet: 429 goes to the next stage, 500 is worth a try."""

    async def then(stage: HttpReranker, server: FakeTei, told: Told) -> None:
        for _ in range(40):
            await asyncio.sleep(1)  # what was known is forgotten, what was earned is not
        server.script = [httpx.Response(429)]
        with pytest.raises(StageOverloaded):
            await score(stage, "q", ["a"])
        server.script = [httpx.Response(500)]
        await score(stage, "q", ["a"])

    assert play(then) == [RetryOutcome.NO_TIME, RetryOutcome.ANSWERED]


@pytest.mark.parametrize("header", ["1", "3600", "99999999999", "Wed, 21 Oct 2026 07:28:00 GMT", "-1", "soon"])
def test_b3_a_pause_that_does_not_fit_goes_to_the_next_stage_at_once(header: str) -> None:
    """429 with a Retry-After beyond the time left, or one that cannot be read, costs no waiting."""

    async def then(stage: HttpReranker, server: FakeTei, told: Told) -> None:
        server.script = [httpx.Response(429, headers={"retry-after": header})]
        with pytest.raises(StageOverloaded) as caught:
            await score(stage, "q", ["a"], within_ms=900)
        assert caught.value.elapsed_ms == pytest.approx(20.0)
        assert len(server.posts) == 1

    assert play(then) == [RetryOutcome.NO_TIME]


def test_b3_a_pause_that_fits_is_kept() -> None:
    """The server asked for a second, and gets it."""

    async def then(stage: HttpReranker, server: FakeTei, told: Told) -> None:
        server.script = [httpx.Response(503, headers={"retry-after": "1"})]
        began = asyncio.get_running_loop().time()
        await score(stage, "q", ["a"], within_ms=5000)
        assert asyncio.get_running_loop().time() - began == pytest.approx(1.04)

    assert play(then) == [RetryOutcome.ANSWERED]


@pytest.mark.parametrize(
    "failure",
    [httpx.Response(400), httpx.Response(401), httpx.Response(424), httpx.Response(504), httpx.ConnectTimeout("m"),
     httpx.Response(200, text="no"), httpx.RemoteProtocolError("m"), httpx.Response(501)],
    ids=["400", "401", "424", "504", "connect timeout", "not JSON", "not HTTP", "501"],
)  # fmt: skip
def test_b5_what_does_not_pass_is_not_tried_again(failure: httpx.Response | Exception) -> None:
    """The same call would fail the same way, or has cost its time already; nothing is told of retries."""

    async def then(stage: HttpReranker, server: FakeTei, told: Told) -> None:
        server.script = [failure]
        with pytest.raises(StageError):
            await score(stage, "q", ["a"])
        assert len(server.posts) == 1

    assert play(then) == []


@pytest.mark.parametrize(("retries", "calls"), [(0, 1), (1, 2), (3, 4)])
def test_b2_how_often_is_configured(retries: int, calls: int) -> None:
    """Zero means never."""

    async def then(stage: HttpReranker, server: FakeTei, told: Told) -> None:
        server.script = [httpx.Response(500)] * 10
        with pytest.raises(StageError):
            await score(stage, "q", ["a"])
        assert len(server.posts) == calls

    assert play(then, earned=100, retries=retries) == [RetryOutcome.FAILED] * (calls - 1)


def test_c1_a_caller_that_goes_away_while_a_retry_waits_takes_it_along() -> None:
    """The pause is cancelled, and the server is not asked again."""

    async def then(stage: HttpReranker, server: FakeTei, told: Told) -> None:
        server.script = [httpx.Response(503, headers={"retry-after": "2"})]
        round_ = asyncio.create_task(score(stage, "q", ["a"], within_ms=60_000))
        await asyncio.sleep(1)
        round_.cancel()
        with pytest.raises(asyncio.CancelledError):
            await round_
        await asyncio.sleep(60)
        assert (len(server.posts), stage.room.in_flight) == (1, 0)

    assert play(then) == []


def test_c1_a_caller_that_goes_away_while_it_waits_for_room_leaves_its_place() -> None:
    """Its call never leaves, and who waited behind it is not held up."""

    async def then(stage: HttpReranker, server: FakeTei, told: Told) -> None:
        server.delay_ms = 500
        holding = asyncio.create_task(score(stage, "q", ["a"]))
        await asyncio.sleep(0)
        leaving = asyncio.create_task(score(stage, "q", ["b"]))
        staying = asyncio.create_task(score(stage, "q", ["c"], within_ms=5000))
        await asyncio.sleep(0.1)
        leaving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await leaving
        await asyncio.gather(holding, staying)
        assert [seen.body["texts"] for seen in server.posts] == [["a"], ["c"]]
        assert (stage.room.in_flight, stage.room.waiting) == (0, 0)

    play(then, max_in_flight_texts=1, earned=1)


def test_b14_a_retry_ends_at_the_deadline_too() -> None:
    """The second try is never answered: the round ends with its time, and the call is cancelled."""

    async def then(stage: HttpReranker, server: FakeTei, told: Told) -> None:
        server.script = [httpx.Response(500)]
        server.delay_ms = 0.0
        round_ = asyncio.create_task(score(stage, "q", ["a"], within_ms=100))
        await asyncio.sleep(0.001)
        server.hangs = True
        with pytest.raises(StageTimeout) as caught:
            await round_
        assert caught.value.elapsed_ms == pytest.approx(100)
        assert server.cancelled == 1

    play(then)
