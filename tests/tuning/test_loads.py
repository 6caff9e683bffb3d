"""Closed and open loops, on virtual time."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator

import pytest

from cascade.errors import ConfigError, StageOverloaded, StageTimeout
from cascade.guard.deadline import Deadline
from cascade.testing.clock import run_virtual
from cascade.text import Text
from cascade.tuning.loads import Arrival, arrivals, closed_loop, open_loop
from cascade.tuning.measuring import requests_at_a_time
from cascade.tuning.texts import WrittenRequest


def _request(documents: int = 2) -> WrittenRequest:
    return WrittenRequest(Text("q"), (Text("d"),) * documents)


def _now() -> float:
    return asyncio.get_running_loop().time()


class _Server:
    """Scores one request at a time, each in ``ms``."""

    def __init__(self, ms: float) -> None:
        self.ms = ms
        self.most = 0
        self.under_way = 0
        self._turn = asyncio.Semaphore(1)

    async def __call__(self, request: WrittenRequest, deadline: Deadline) -> None:
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        try:
            async with self._turn:
                await asyncio.sleep(self.ms / 1000)
        finally:
            self.under_way -= 1


def test_a_closed_loop_counts_pairs_of_whole_requests() -> None:
    """Two requests under way, 100 ms each one after the other: 20 pairs a second, however the time falls."""

    async def go() -> tuple[float, int]:
        server = _Server(100.0)
        requests: Iterator[WrittenRequest] = itertools.repeat(_request())
        rate = await closed_loop(server, requests, concurrent=2, seconds=1.05, clock=_now)
        return rate, server.most

    rate, most = run_virtual(go())
    assert rate == pytest.approx(20.0)
    assert most == 2


def test_a_closed_loop_with_no_time_runs_each_once() -> None:
    """The least that can be measured is a request each."""

    async def go() -> float:
        return await closed_loop(_Server(50.0), itertools.repeat(_request(5)), concurrent=3, seconds=0.0, clock=_now)

    assert run_virtual(go()) == pytest.approx(100.0)


def test_a_closed_loop_that_fails_says_so() -> None:
    """A stage that refuses a request cannot be measured; the error names the code and no text."""

    async def refuse(request: WrittenRequest, deadline: Deadline) -> None:
        raise StageOverloaded("tune", "queue_full", elapsed_ms=0.0, budget_ms=1.0, sent=0)

    async def go() -> float:
        return await closed_loop(refuse, itertools.repeat(_request()), concurrent=1, seconds=1.0, clock=_now)

    with pytest.raises(ConfigError, match=r"^2 candidates are not scored: queue_full$"):
        run_virtual(go())


def test_a_closed_loop_that_is_too_slow_says_what_to_give() -> None:
    """A code alone would not tell."""

    async def late(request: WrittenRequest, deadline: Deadline) -> None:
        raise StageTimeout("tune", "no_time", elapsed_ms=0.0, budget_ms=1.0, sent=0)

    async def go() -> float:
        return await closed_loop(late, itertools.repeat(_request()), concurrent=1, seconds=1.0, clock=_now)

    with pytest.raises(ConfigError, match=r"^2 candidates are not scored in 120 s: give fewer --candidates$"):
        run_virtual(go())


def test_a_closed_loop_that_fails_leaves_nothing_under_way() -> None:
    """What is measured next would be slowed by it."""

    async def go() -> int:
        server = _Server(1000.0)

        async def score(request: WrittenRequest, deadline: Deadline) -> None:
            if len(request.documents) == 1:
                raise StageOverloaded("tune", "queue_full", elapsed_ms=0.0, budget_ms=1.0, sent=0)
            await server(request, deadline)

        requests = itertools.chain([_request(2), _request(1)], itertools.repeat(_request(2)))
        with pytest.raises(ConfigError, match="queue_full"):
            await closed_loop(score, requests, concurrent=2, seconds=100.0, clock=_now)
        return server.under_way

    assert run_virtual(go()) == 0


def _goodput(ms: float, times: list[float], deadline_ms: float, max_in_flight: int = 64) -> tuple[float, int]:
    async def go() -> tuple[float, int]:
        server = _Server(ms)
        coming = [Arrival(at, _request()) for at in times]
        rate = await open_loop(
            server, coming, deadline_ms=deadline_ms, max_in_flight=max_in_flight, seconds=10.0, clock=_now
        )
        return rate, server.most

    return run_virtual(go())


def test_an_open_loop_counts_what_is_in_time() -> None:
    """Three at once, 100 ms each, 250 ms to answer: two are in time, counted from when each came."""
    assert _goodput(100.0, [1.0, 1.0, 1.0], 250.0)[0] == pytest.approx(0.2)
    assert _goodput(100.0, [1.0, 1.1, 1.2], 250.0)[0] == pytest.approx(0.3)


def test_an_open_loop_does_not_wait_for_answers() -> None:
    """Requests come at their times though none is done, and no more than the seats are scored at a time."""
    assert _goodput(1000.0, [0.0, 0.1, 0.2, 0.3], 5000.0)[1] == 4
    assert _goodput(1000.0, [0.0, 0.1, 0.2, 0.3], 5000.0, max_in_flight=2)[1] == 2


def test_what_waits_for_a_seat_beyond_its_deadline_is_late() -> None:
    """The wait for a seat counts: with one seat the second is late, and is never scored."""
    rate, most = _goodput(100.0, [0.0, 0.0], 150.0, max_in_flight=1)
    assert rate == pytest.approx(0.1)
    assert most == 1


def test_arrivals_are_those_of_their_seed_and_rate() -> None:
    """About rate times seconds, ascending, within the time; never none."""
    times = arrivals(50.0, 100.0, 3)
    assert times == sorted(times) == arrivals(50.0, 100.0, 3)
    assert times != arrivals(50.0, 100.0, 4)
    assert 4700 < len(times) < 5300
    assert 0 < times[0] <= times[-1] < 100.0
    assert arrivals(1e-9, 2.0, 0) == [2.0]


@pytest.mark.parametrize(
    ("threads", "candidates", "requests"),
    [(2, 20, 2), (64, 20, 64), (2, 1, 40), (2, 3, 14), (96, 100, 40), (2, 2048, 2)],
)
def test_a_closed_loop_keeps_threads_busy_and_batches_full(threads: int, candidates: int, requests: int) -> None:
    """A request a thread, 40 pairs at the least, of few candidates too, and no more than the engine lets wait."""
    assert requests_at_a_time(threads, candidates) == requests
