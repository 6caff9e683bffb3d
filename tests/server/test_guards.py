"""Guards as callers and operators see them, over HTTP: headers, metrics, status and the log."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import orjson
import pytest

from cascade.guard.events import GuardEvents
from cascade.policy.release import HttpStage
from cascade.server.guards import guard_events
from cascade.stages.build import build_stages
from cascade.stages.engine.workers import worker_pool
from cascade.telemetry.guard_metrics import GuardMetrics
from cascade.telemetry.logs import configure_logging
from cascade.testing.clock import run_virtual
from cascade.testing.upstream import FakeTei
from cascade.types import StageName
from tests.logs import logging_given_back
from tests.server.sidecar import Sidecar, release_of, sidecar

_BUDGETS = {"total_ms": 200.0, "small_ms": 50.0, "large_ms": 100.0, "reserve_ms": 10.0}
_BODY = {"query": "red fox", "texts": ["grey dog", "red fox", "red dog"]}
_ORDER = [1, 2, 0]


@asynccontextmanager
async def serving(small: FakeTei, large: FakeTei, **budgets: float) -> AsyncIterator[Sidecar]:
    """Give a sidecar with real stages before fake servers, its guards wired as the lifecycle wires them."""
    release, servers = release_of(budgets=_BUDGETS | budgets), [small, large]
    counted: list[GuardMetrics] = []

    def events_of(name: StageName) -> GuardEvents:  # the metrics are made with the sidecar, after its stages
        return GuardEvents(
            retried=lambda outcome: guard_events(counted[0])(name).retried(outcome),
            breaker=lambda state: guard_events(counted[0])(name).breaker(state),
        )

    def transport(spec: HttpStage) -> httpx.AsyncBaseTransport:
        return httpx.MockTransport(servers.pop(0))

    with worker_pool(1) as pool:
        stages = build_stages(
            release,
            clock=asyncio.get_running_loop().time,
            pool=pool,
            environment={},
            transport_for=transport,
            events_of=events_of,
            draw=lambda: 0.5,
        )
        for stage in stages.values():
            await stage.start()
        served = sidecar(stages=stages, release=release)
        counted.append(served.service.metrics.guards)
        yield served
        for stage in stages.values():
            await stage.aclose()


def play(then: Callable[[Sidecar, FakeTei, FakeTei], Awaitable[None]], **budgets: float) -> list[dict[str, Any]]:
    """Play on virtual time; return the log's lines about breakers."""

    async def whole() -> None:
        small, large = FakeTei(), FakeTei()
        async with serving(small, large, **budgets) as served:
            await then(served, small, large)

    with logging_given_back():
        log = io.BytesIO()
        configure_logging("info", log)
        run_virtual(whole())
    lines = [orjson.loads(line) for line in log.getvalue().splitlines()]
    return [line for line in lines if line["event"] == "breaker"]


async def ask(served: Sidecar) -> str:
    """Ask for an order, make sure that it is whole, and return why it is degraded."""
    response = await served.post("/rerank", _BODY)
    assert response.status_code == 200
    assert [item["index"] for item in response.json()] == _ORDER
    return str(response.headers.get("x-cascade-degraded", ""))


def test_b13_a_black_hole_is_left_out_too_where_the_deadline_is_sooner_than_the_stages_budget() -> None:
    """Half of a budget that nobody has would never be reached, and every request would wait for its deadline."""

    async def then(served: Sidecar, small: FakeTei, large: FakeTei) -> None:
        large.hangs = True
        assert [await ask(served) for _ in range(6)] == ["stage_timeout"] * 5 + ["breaker_open"]

    assert [line["state"] for line in play(then, large_ms=1000.0)] == ["open"]


def test_22_b13_a_black_hole_is_answered_within_the_budget_and_then_left_out() -> None:
    """Its health route says 200 all the time. Five requests wait for it, the others get the small order at once."""

    async def then(served: Sidecar, small: FakeTei, large: FakeTei) -> None:
        assert await ask(served) == ""
        large.hangs = True
        loop = asyncio.get_running_loop()
        for number in range(10):
            began = loop.time()
            assert await ask(served) == ("stage_timeout" if number < 5 else "breaker_open")
            assert loop.time() - began == pytest.approx(0.1 if number < 5 else 0.0)
        status = (await served.admin.get("/status")).json()["stages"]
        assert (status["large"]["guards"]["breaker"], status["small"]["guards"]["breaker"]) == ("open", "closed")
        told = await served.metrics()
        assert told['cascade_breaker_state{stage="large"}'] == 2
        assert told['cascade_breaker_state{stage="small"}'] == 0
        assert told['cascade_rounds_total{outcome="breaker_open",stage="large"}'] == 5
        large.hangs = False
        await asyncio.sleep(5)
        assert [await ask(served) for _ in range(4)] == [""] * 4
        assert (await served.metrics())['cascade_breaker_changes_total{stage="large",state="closed"}'] == 1

    lines = play(then)
    assert [(line["stage"], line["state"], line["level"]) for line in lines] == [
        ("large", "open", "warning"),
        ("large", "half_open", "warning"),
        ("large", "closed", "info"),
    ]


@pytest.mark.parametrize(
    ("failure", "reason"),
    [
        (httpx.Response(400), "stage_refused"),
        (httpx.Response(401), "stage_refused"),
        (httpx.Response(402), "stage_refused"),
        (httpx.Response(404), "stage_refused"),
        (httpx.Response(413, text="length limit exceeded"), ""),
        (httpx.Response(422, text="schema"), "stage_refused"),
        (httpx.Response(424), "stage_invalid_answer"),
        (httpx.Response(429), "stage_overloaded"),
        (httpx.Response(500), "stage_invalid_answer"),
        (httpx.Response(502), "stage_unreachable"),
        (httpx.Response(503), "stage_overloaded"),
        (httpx.Response(504), "stage_timeout"),
        (httpx.ConnectError("m"), "stage_unreachable"),
        (httpx.ReadError("m"), "stage_unreachable"),
        (httpx.Response(200, text="no"), "stage_invalid_answer"),
    ],
    ids=str,
)
def test_b5_b8_every_failure_leads_to_the_next_stage(failure: httpx.Response | Exception, reason: str) -> None:
    """Of a large stage that fails the small order is left, and the answer says why; a body too large is taken apart."""

    async def then(served: Sidecar, small: FakeTei, large: FakeTei) -> None:
        large.script = [failure]
        assert await ask(served) == reason

    play(then)


def test_a8_a_small_stage_with_an_open_breaker_leaves_the_large_one() -> None:
    """Open goes to the next stage at once."""

    async def then(served: Sidecar, small: FakeTei, large: FakeTei) -> None:
        small.script = [httpx.Response(401)] * 5
        for _ in range(5):
            assert await ask(served) == "stage_refused"
        asked = len(small.posts)
        assert await ask(served) == "breaker_open"
        assert (len(small.posts), len(large.posts)) == (asked, 6)

    play(then)


def test_31_a_retry_is_counted_and_the_answer_is_not_degraded() -> None:
    """Ten answered calls paid for it."""

    async def then(served: Sidecar, small: FakeTei, large: FakeTei) -> None:
        for _ in range(10):
            await ask(served)
        large.script = [httpx.Response(502)]
        assert await ask(served) == ""
        told = await served.metrics()
        assert told['cascade_retries_total{outcome="answered",stage="large"}'] == 1
        assert told['cascade_upstream_limit_texts{stage="large"}'] > 0
        assert told['cascade_upstream_in_flight_texts{stage="large"}'] == 0
        assert told['cascade_upstream_calls_waiting{stage="large"}'] == 0

    play(then)
