"""A sample of the soak, on virtual time: whatever servers and clients do, every answer is whole, in time and silent."""

from __future__ import annotations

import asyncio
import io
import random
import re
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

import pytest
from starlette.types import ASGIApp

from cascade.cache.key import KeyMaker
from cascade.cache.memory import MemoryStore
from cascade.cache.score_cache import CacheEvents, Looked, ScoreCache
from cascade.decision import DegradedReason
from cascade.guard.seat import Bounds
from cascade.server.app import public_app
from cascade.server.stepping import step_levels
from cascade.server.watching import watch_stages
from cascade.stages.http import HttpReranker
from cascade.telemetry.logs import configure_logging
from cascade.testing.clock import run_virtual
from cascade.testing.rerank_api import FakeInfinity, FakeLlamaCpp
from cascade.testing.upstream import FakeServer, FakeTei, FakeVllm
from cascade.types import Arm, BreakerState, Lane, StageName
from evals.soak.__main__ import QUERIES, release
from evals.soak.faults import Deck, FaultKind
from evals.soak.requests import CANARY, Asked, Judged, draw_request, judge, score_by
from tests.logs import logging_given_back
from tests.server.sidecar import Sidecar, release_of, sidecar
from tests.stages.arrange import api_spec, stage_before, tei_spec, vllm_spec

from .faulty_transport import FaultyTransport

_REQUESTS: Final = 900
_RATE: Final = 90.0
_SALTS: Final = ("small", "large")
_BOUNDS: Final = Bounds(most=4, most_waiting=4, most_long=1, long_cost=40_000.0)
"""Fewer seats than servers that stall take: some wait for one, and some get none."""
_FAKES: Final[dict[str, type[FakeServer]]] = {
    "tei": FakeTei,
    "vllm": FakeVllm,
    "infinity": FakeInfinity,
    "llamacpp": FakeLlamaCpp,
}


@dataclass(slots=True)
class Reply:
    """What came back over ASGI. ``status`` stays 0 where the client left before."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    took_ms: float = 0.0


@dataclass(slots=True)
class Soaked:
    """A sample that is over, and what was still there when nothing was asked any more."""

    served: Sidecar
    stages: Mapping[StageName, HttpReranker]
    transports: list[FaultyTransport]
    answers: list[tuple[Asked, Reply, Judged]]
    afterwards: list[Judged]
    tasks: list[str]
    outputs: bytes
    metrics: dict[str, float]
    kept: Counter[str]

    def met(self) -> Counter[FaultKind]:
        """Return how many calls met each kind."""
        return sum((transport.met for transport in self.transports), Counter())


async def _ask(app: ASGIApp, asked: Asked, *, leaves_after_s: float | None) -> Reply:
    """Be a client that may go away, as a server tells an application."""
    loop = asyncio.get_running_loop()
    began, reply, ended = loop.time(), Reply(), asyncio.Event()
    sent = False

    async def receive() -> dict[str, Any]:
        nonlocal sent
        if not sent:
            sent = True
            return {"type": "http.request", "body": asked.body, "more_body": False}
        with suppress(TimeoutError):
            async with asyncio.timeout(leaves_after_s):
                await ended.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            reply.status = message["status"]
            reply.headers = {name.decode(): value.decode() for name, value in message["headers"]}
        else:
            reply.body += message.get("body", b"")
            reply.took_ms = (loop.time() - began) * 1000

    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "POST",
        "path": asked.path,
        "raw_path": asked.path.encode(),
        "query_string": b"",
        "headers": [(name.encode(), value.encode()) for name, value in asked.headers.items()],
        "client": ("127.0.0.1", 1),
        "server": ("sidecar.test", 80),
        "scheme": "http",
        "root_path": "",
    }
    await app(scope, receive, send)
    ended.set()
    return reply


def _stages(transports: Mapping[str, FaultyTransport], adapters: tuple[str, str]) -> dict[StageName, HttpReranker]:
    """Return the stages of the soak's release, each before a transport that fails."""
    written = release(adapters, ("http://small.test", "http://large.test"))["stages"]
    stages = {}
    for salt, transport in transports.items():
        adapter = written[salt].pop("adapter")
        spec_of = {"tei": tei_spec, "vllm": vllm_spec}.get(adapter)
        spec = spec_of(**written[salt]) if spec_of is not None else api_spec(adapter, **written[salt])
        stages[StageName(salt)] = stage_before(transport, spec, budget_ms=150.0)
    return stages


def _cache(asked: Counter[str]) -> ScoreCache:
    """Return a cache that keeps scores as the soak's does; what becomes of documents is counted."""
    clock = asyncio.get_running_loop().time

    def looked(stage: StageName, arm: Arm, found: Looked) -> None:
        asked.update(hits=found.hits, misses=found.misses)

    return ScoreCache(
        MemoryStore(1_000_000, 10.0, clock), KeyMaker(b"secret of a test"), clock, events=CacheEvents(looked=looked)
    )


async def _soaked(
    adapters: tuple[str, str],
    seed: int,
    log: io.BytesIO,
    *,
    requests: int = _REQUESTS,
    afterwards_s: float = 60.0,
    keeps: bool = False,
) -> Soaked:
    """Send requests under faults, then one each half a second to servers that are well, and look at what is left."""
    transports = {
        salt: FaultyTransport(
            _FAKES[adapter](score_of=score_by(salt), delay_ms=3.0),
            Deck(f"{seed} {salt}", share=0.3, episode_every=120),
            CANARY,
        )
        for salt, adapter in zip(_SALTS, adapters, strict=True)
    }
    stages = _stages(transports, adapters)
    await asyncio.gather(*(stage.start() for stage in stages.values()))
    written = release(adapters, ("http://small.test", "http://large.test"))
    behaviour = {key: written[key] for key in ("depth", "escalation", "budgets", "overload", "levels")}
    kept: Counter[str] = Counter()
    cache, queries = (_cache(kept), QUERIES["memory"]) if keeps else (None, QUERIES["off"])
    served = sidecar(stages=stages, release=release_of(**behaviour), bounds=_BOUNDS, cache=cache)
    stepping = served.service.traffic.stable.stepping
    background = asyncio.gather(
        step_levels(stepping, 0.25, served.service.faults), watch_stages(served.service, seconds=5.0)
    )
    await asyncio.sleep(0.01)
    tasks_before = {task.get_name() for task in asyncio.all_tasks()}
    app, drawn = public_app(served.service), random.Random(seed)  # noqa: S311 - no secret
    answers: list[tuple[Asked, Reply, Judged]] = []

    async def one(asked: Asked, leaves_after_s: float | None, into: list[tuple[Asked, Reply, Judged]]) -> None:
        reply = await _ask(app, asked, leaves_after_s=leaves_after_s)
        if leaves_after_s is None:
            into.append((asked, reply, judge(asked, reply.status, reply.headers, reply.body, servers=_SALTS)))

    async with asyncio.TaskGroup() as group:
        for _ in range(requests):
            await asyncio.sleep(drawn.expovariate(_RATE))
            leaves = drawn.random() ** 2 * 0.1 if drawn.random() < 0.1 else None
            group.create_task(one(draw_request(drawn, queries=queries), leaves, answers))
    for transport in transports.values():
        transport.whole = True
    afterwards: list[tuple[Asked, Reply, Judged]] = []
    for _ in range(int(afterwards_s * 2)):
        await asyncio.sleep(0.5)
        await one(draw_request(drawn, queries=queries), None, afterwards)
    await asyncio.sleep(1.0)
    outputs = b"\n".join([(await served.admin.get(path)).content for path in ("/metrics", "/status")])
    metrics = await served.metrics()
    left = [task.get_name() for task in asyncio.all_tasks() if task.get_name() not in tasks_before]
    background.cancel()
    await asyncio.gather(*(stage.aclose() for stage in stages.values()))
    outputs += log.getvalue() + b"".join(repr(reply.headers).encode() + reply.body for _, reply, _ in answers)
    return Soaked(
        served,
        stages,
        list(transports.values()),
        answers,
        [judged for *_, judged in afterwards],
        left,
        outputs,
        metrics,
        kept,
    )


@pytest.fixture(
    scope="module", params=[("tei", "vllm"), ("infinity", "llamacpp"), ("tei", "vllm", "cached")], ids="-".join
)
def soaked(request: pytest.FixtureRequest) -> Soaked:
    """Soak a whole sidecar before two servers, once for all tests of it."""
    log = io.BytesIO()
    with logging_given_back():
        configure_logging("debug", log)
        return run_virtual(_soaked(request.param[:2], 1, log, keeps="cached" in request.param))


def test_every_kind_of_fault_was_met_and_every_kind_of_answer_given(soaked: Soaked) -> None:
    """The sample is one: each kind of a server's faults, every stage's answers, and what guards do about them."""
    assert set(soaked.met()) == {kind for kind in FaultKind if not kind.startswith("leave")}
    assert {judged.stage for *_, judged in soaked.answers} == {"large", "small", "retrieval", "refused"}
    reasons = {reason for *_, judged in soaked.answers for reason in judged.degraded}
    assert {
        DegradedReason.STAGE_TIMEOUT,
        DegradedReason.STAGE_UNREACHABLE,
        DegradedReason.STAGE_INVALID_ANSWER,
    } <= reasons
    assert {DegradedReason.BREAKER_OPEN, DegradedReason.DEADLINE_TOO_SHORT, DegradedReason.LOAD_LEVEL} <= reasons
    assert 0.8 * _REQUESTS < len(soaked.answers) < _REQUESTS
    assert soaked.metrics["cascade_abandoned_total"] > 0
    assert not soaked.kept or min(soaked.kept["hits"], soaked.kept["misses"]) > 1000


def test_a1_a5_a6_a10_d5_d7_every_answer_is_a_whole_order_of_its_stage(soaked: Soaked) -> None:
    """Invariants 1 and 4: each index once, cut to top_n, by the scores that count; what is not as planned says why."""
    assert [judged for *_, judged in soaked.answers if judged.breaches] == []


def test_a7_b14_no_answer_is_later_than_its_deadline(soaked: Soaked) -> None:
    """Invariant 5: with servers that stall, drip and come late, no answer leaves after the caller's deadline."""
    assert [reply.took_ms for asked, reply, _ in soaked.answers if reply.took_ms > asked.deadline_ms] == []


def test_g1_no_text_is_in_any_output(soaked: Soaked) -> None:
    """Invariant 7: log at DEBUG, metrics, status, answers and their headers hold nothing of what was sent."""
    assert len(soaked.outputs) > 100_000
    assert CANARY.encode() not in soaked.outputs


def test_c1_c2_nothing_is_left_when_nothing_is_asked(soaked: Soaked) -> None:
    """No task, call, seat, place in a queue or text in flight outlives the requests; no fault was ours."""
    service = soaked.served.service
    assert soaked.tasks == []
    assert [transport.under_way for transport in soaked.transports] == [0, 0]
    assert service.held == 0
    assert [(service.admission.held(lane), service.admission.waiting(lane)) for lane in Lane] == [(0, 0)] * len(Lane)
    for stage in soaked.stages.values():
        assert (stage.guarded.in_flight_texts, stage.guarded.in_flight_tokens, stage.guarded.waiting_calls) == (0, 0, 0)
    assert sum(value for name, value in soaked.metrics.items() if name.startswith("cascade_internal_faults")) == 0


def test_b6_b13_once_servers_are_well_breakers_close_and_answers_are_whole_again(soaked: Soaked) -> None:
    """What faults did to breakers, limits and levels passes: of the last answers only deadlines cut any short."""
    last = soaked.afterwards[-20:]
    assert [stage.guarded.breaker for stage in soaked.stages.values()] == [BreakerState.CLOSED] * 2
    assert {reason for judged in last for reason in judged.degraded} <= {"deadline_too_short"}
    assert sum(judged.stage == "large" and not judged.degraded for judged in last) >= 12
    assert soaked.served.service.traffic.stable.pipeline.level.index == 0


def test_the_same_faults_and_requests_give_the_same_answers() -> None:
    """Invariant 9: nothing but the script decides, whatever retries, breakers and levels did on the way."""
    with logging_given_back():
        configure_logging("error", io.BytesIO())
        once, again = (
            run_virtual(_soaked(("tei", "vllm"), 7, io.BytesIO(), requests=150, afterwards_s=0.0)) for _ in range(2)
        )
    assert _said(once) == _said(again)
    assert once.met() == again.met()


def _said(soaked: Soaked) -> list[tuple[bytes, dict[str, str], float]]:
    """Return the answers without the hour, which vLLM tells."""
    created = re.compile(rb'"created":\d+')
    return [(created.sub(b"", reply.body), reply.headers, reply.took_ms) for _, reply, _ in soaked.answers]
