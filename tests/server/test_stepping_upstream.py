"""Load levels over real adapters and servers that cannot keep up, on virtual time."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import httpx

from cascade.guard.breaker import Breaker, Outcome
from cascade.guard.inflight import TextLimiter
from cascade.policy.stage_specs import BreakerRules
from cascade.server.stepping import step_levels
from cascade.stages.http import HttpReranker
from cascade.testing.clock import run_virtual
from cascade.testing.upstream import FakeTei
from cascade.types import StageName
from tests.server.sidecar import BODIES, Sidecar, release_of, sidecar
from tests.stages.arrange import stage_before, tei_spec

_LEVELS = [
    {"name": "normal"}, {"name": "degraded-1", "escalation": "none"}, {"name": "degraded-2", "stages": "none"},
]  # fmt: skip
_BUDGETS = {"total_ms": 300.0, "small_ms": 100.0, "large_ms": 250.0, "reserve_ms": 10.0}
_TEXTS = [f"text {number}" for number in range(20)]


@dataclass
class _Busy(FakeTei):
    """A server that scores one call at a time, as a GPU does, each in ``call_ms``."""

    call_ms: float = 50.0

    def __post_init__(self) -> None:
        self._turn = asyncio.Lock()

    async def __call__(self, request: httpx.Request) -> httpx.Response:
        if request.method != "POST":
            return await FakeTei.__call__(self, request)
        async with self._turn:
            await asyncio.sleep(self.call_ms / 1000)
            return await FakeTei.__call__(self, request)


@asynccontextmanager
async def _served(small: FakeTei, large: FakeTei) -> AsyncIterator[Sidecar]:
    stages: dict[StageName, HttpReranker] = {
        name: stage_before(httpx.MockTransport(server), tei_spec(max_in_flight_texts=64), budget_ms=250)
        for name, server in ((StageName.SMALL, small), (StageName.LARGE, large))
    }
    for stage in stages.values():
        await stage.start()
    served = sidecar(stages=stages, release=release_of(levels=_LEVELS, budgets=_BUDGETS))
    stepping = served.service.traffic.stable.stepping
    steps = asyncio.create_task(step_levels(stepping, 0.25, served.service.faults))
    try:
        yield served
    finally:
        steps.cancel()
        for stage in stages.values():
            await stage.aclose()


async def _load(served: Sidecar, rate: float, seconds: float) -> list[httpx.Response]:
    """Ask ``rate`` times a second, evenly, whatever has been answered; return the answers."""
    asked = []
    for _ in range(int(rate * seconds)):
        asked.append(asyncio.create_task(served.post("/rerank", BODIES["tei"]("query", _TEXTS))))
        await asyncio.sleep(1 / rate)
    return list(await asyncio.gather(*asked))


def _levels(answers: list[httpx.Response]) -> Counter[str]:
    return Counter(answer.headers.get("x-cascade-level", "normal") for answer in answers)


def test_three_times_the_load_is_answered_by_the_level_that_can() -> None:
    """Every answer is whole and in time; most by the small stage, some by the large one where it has room; then back."""

    async def play() -> None:
        async with _served(_Busy(call_ms=4.0), _Busy(call_ms=60.0)) as served:
            before = await _load(served, 8, 4)
            assert set(_levels(before)) == {"normal"}
            during = await _load(served, 45, 12)
            assert all(answer.status_code == 200 and len(answer.json()) == 20 for answer in during)
            settled = during[45 * 4 :]
            assert served.service.traffic.stable.pipeline.level.name == "degraded-1"
            assert _levels(settled)["degraded-1"] > 0.5 * len(settled)
            assert _levels(settled)["normal"] > 0.05 * len(settled)
            short = [each for each in settled if "deadline_too_short" in each.headers.get("x-cascade-degraded", "")]
            assert len(short) < 0.1 * len(settled)
            await _load(served, 4, 40)
            assert set(_levels(await _load(served, 4, 4))) == {"normal"}

    run_virtual(play())


def test_a_black_hole_steps_to_the_level_without_it_and_is_tried_again() -> None:
    """A large server that accepts and never answers opens its breaker; the level waits for that to be over, no longer."""

    async def play() -> None:
        large = _Busy(call_ms=20.0)
        async with _served(_Busy(call_ms=4.0), large) as served:
            large.hangs = True
            await _load(served, 20, 4)
            assert served.service.traffic.stable.pipeline.level.name == "degraded-1"
            asked = len(large.posts)
            await _load(served, 20, 2)
            assert len(large.posts) - asked <= 3
            large.hangs = False
            await _load(served, 4, 60)
            assert served.service.traffic.stable.pipeline.level.name == "normal"
            assert "x-cascade-degraded" not in (await _load(served, 4, 1))[-1].headers

    run_virtual(play())


def test_the_head_of_a_line_tells_its_age() -> None:
    """Nought where nobody waits, and of the first alone."""

    async def play() -> None:
        room = TextLimiter(10)
        assert room.oldest_wait_ms == 0.0
        async with room.hold(10):
            first = asyncio.create_task(_held(room))
            await asyncio.sleep(0.2)
            second = asyncio.create_task(_held(room))
            await asyncio.sleep(0.1)
            assert round(room.oldest_wait_ms, 6) == 300.0
        await asyncio.gather(first, second)
        assert room.oldest_wait_ms == 0.0

    run_virtual(play())


async def _held(room: TextLimiter) -> None:
    async with room.hold(5):
        await asyncio.sleep(0.01)


def test_an_open_breaker_refuses_no_longer_than_its_time() -> None:
    """Nobody asks while levels leave its server alone: it must not look open for ever."""
    now = [0.0]
    breaker = Breaker(BreakerRules(consecutive=1, open_s=5.0), lambda: now[0], lambda: 0.5)
    assert not breaker.refuses
    epoch = breaker.enter()
    assert epoch is not None
    breaker.leave(epoch, Outcome.FAILURE)
    now[0] = 4.9
    assert (breaker.is_open, breaker.refuses) == (True, True)
    now[0] = 5.1
    assert (breaker.is_open, breaker.refuses) == (False, False)
