"""A stage before a server that batches: a jump in load is no fault of the server's, and a fault under load is still one."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field

import httpx
import orjson
import pytest

from cascade.errors import StageError
from cascade.guard.deadline import Deadline
from cascade.guard.events import GuardEvents
from cascade.stages.http import HttpReranker
from cascade.stages.round import begin_round
from cascade.stages.serializers import serializer
from cascade.testing.clock import run_virtual
from cascade.testing.upstream import FakeVllm
from cascade.text import Text
from cascade.types import BreakerState
from tests.guard.batching_server import BatchingServer

from .arrange import score, stage_before, vllm_spec

_BUDGET_MS = 250.0
_DOCUMENTS = ["a"] * 20
_CAPACITY = 1000 * 64 / (20 + 64 * 1.5) / 20
"""Requests of 20 documents a second."""


@dataclass
class _Batching:
    """vLLM servers that batch, behind a balancer that draws; a call for which ``lost`` is true is never answered."""

    lost: Callable[[int], bool] = lambda number: False
    slow: float = 1.0
    replicas: int = 1
    fake: FakeVllm = field(default_factory=FakeVllm)
    calls: int = 0

    def __post_init__(self) -> None:
        self.batches = [BatchingServer(20.0 * self.slow, 1.5 * self.slow, 64) for _ in range(self.replicas)]
        self.balance = random.Random(1)  # noqa: S311 - a simulation

    async def __call__(self, request: httpx.Request) -> httpx.Response:
        if request.method == "POST":
            self.calls += 1
            if self.lost(self.calls):
                await asyncio.Event().wait()
            await self.balance.choice(self.batches).call(len(orjson.loads(await request.aread())["text_2"]))
        return await self.fake(request)


@dataclass
class _Played:
    """When rounds were answered, and when the breaker took which state, in seconds."""

    answered: list[float] = field(default_factory=list)
    codes: dict[str, int] = field(default_factory=dict)
    states: list[tuple[float, BreakerState]] = field(default_factory=list)
    queue_ms: list[float | None] = field(default_factory=list)

    def answered_between(self, begin: float, end: float) -> int:
        return sum(begin <= at < end for at in self.answered)


async def _round(stage: HttpReranker, played: _Played) -> None:
    try:
        await score(stage, "q", _DOCUMENTS, within_ms=_BUDGET_MS)
    except StageError as error:
        played.codes[error.code] = played.codes.get(error.code, 0) + 1
        if error.code == "deadline":
            played.queue_ms.append(error.queue_ms)
    else:
        played.answered.append(asyncio.get_running_loop().time())


def _play(server: _Batching, load: Callable[[float], float], seconds: float, **fields: object) -> _Played:
    """Send rounds evenly, ``load(t)`` times what the server can score, by a stage with these ``fields``."""
    played = _Played()

    async def play() -> None:
        loop = asyncio.get_running_loop()
        events = GuardEvents(breaker=lambda state: played.states.append((loop.time(), state)))
        spec = vllm_spec(**fields)
        stage = stage_before(httpx.MockTransport(server), spec, budget_ms=_BUDGET_MS, events=events)
        await stage.start()
        rounds = []
        began = loop.time()
        while loop.time() - began < seconds:
            rounds.append(asyncio.create_task(_round(stage, played)))
            await asyncio.sleep(1 / (_CAPACITY * load(loop.time() - began)))
        await asyncio.gather(*rounds)
        await stage.aclose()
        played.answered = [at - began for at in played.answered]
        played.states = [(at - began, state) for at, state in played.states]

    run_virtual(play())
    return played


@pytest.mark.parametrize(("times", "share"), [(1.5, 0.6), (2.0, 0.6), (4.0, 0.6), (10.0, 0.35)])
def test_a_jump_in_load_opens_no_breaker_where_the_limit_can_follow(times: float, share: float) -> None:
    """What was sent before the limit knew stands in a queue of our own making; a second later the server is in use."""
    played = _play(_Batching(), lambda t: 0.5 if t < 1 else times, 4.0)
    assert played.states == []
    assert played.answered_between(2, 4) > 2 * share * _CAPACITY


@pytest.mark.parametrize("replicas", [2, 4])
@pytest.mark.parametrize("times", [1.5, 2.0, 4.0])
def test_a_jump_in_load_opens_no_breaker_before_replicas_of_which_each_has_its_queue(
    replicas: int, times: float
) -> None:
    """Calls are overtaken by those that were sent to a replica with a shorter queue, and that took long as well."""
    played = _play(_Batching(replicas=replicas), lambda t: replicas * (0.5 if t < 1 else times), 4.0)
    assert played.states == []
    assert played.answered_between(2, 4) > 2 * 0.4 * replicas * _CAPACITY


def test_where_the_limit_is_fixed_a_jump_opens_it() -> None:
    """Nothing else would end the queue."""
    played = _play(_Batching(), lambda t: 0.5 if t < 1 else 4.0, 4.0, adaptive_limit=False)
    assert played.states[0][1] is BreakerState.OPEN
    assert played.answered_between(2, 4) == 0


@pytest.mark.parametrize("times", [0.5, 1.0, 2.0, 4.0])
def test_b13_a_server_that_stops_answering_under_load_is_left_alone_within_four_budgets(times: float) -> None:
    """What left before it stopped may stand in a queue; what left after that is owed its answer."""
    server = _Batching(lost=lambda number: asyncio.get_running_loop().time() >= 3.0)
    played = _play(server, lambda t: 0.5 if t < 1 else times, 5.0)
    opened = [at for at, state in played.states if state is BreakerState.OPEN]
    assert 3.0 < opened[0] < 3.0 + 4 * _BUDGET_MS / 1000
    assert played.codes["breaker_open"] > 0


@pytest.mark.parametrize("times", [0.5, 2.0])
def test_a_server_of_which_two_thirds_are_gone_is_left_alone(times: float) -> None:
    """Later calls are answered by what is left of it, so that no queue excuses those that are not."""
    played = _play(_Batching(lost=lambda number: number > 20 and number % 3 != 0), lambda t: times, 8.0)
    assert played.states[0][1] is BreakerState.OPEN


@pytest.mark.parametrize("chunks", [2, 3])
def test_b13_a_server_that_never_answers_the_last_call_of_a_round_is_left_alone(chunks: int) -> None:
    """That it answers the other calls of the same round makes no queue: one of its replicas is dead."""
    server = _Batching(lost=lambda number: number % chunks == 0)
    played = _play(server, lambda t: 1.5 / _CAPACITY, 5.0, chunk_texts=len(_DOCUMENTS) // chunks + 1)
    assert played.answered == []
    assert played.states[0][1] is BreakerState.OPEN
    assert played.codes["deadline"] == 5  # as many in a row as open it


def test_a_server_that_takes_longer_than_a_budget_for_one_call_is_left_alone() -> None:
    """Six times as slow, it answers nobody in time, however few are sent."""
    played = _play(_Batching(slow=6.0), lambda t: 0.5, 4.0)
    assert played.states[0][1] is BreakerState.OPEN


def test_a_round_that_times_out_in_the_queue_of_its_server_tells_how_long_it_stood_there() -> None:
    """From when it left until its time was over, so that nobody takes it for a round that was computed."""
    told = _play(_Batching(), lambda t: 0.5 if t < 1 else 4.0, 2.0).queue_ms
    waits = [ms for ms in told if ms is not None]
    assert len(waits) > len(told) / 2
    assert max(waits) == pytest.approx(_BUDGET_MS)
    assert min(waits) > 0


def test_what_a_round_waited_here_or_was_answered_before_is_no_time_in_the_queue_of_its_server() -> None:
    """Of calls that are given up the longest counts, from when it left; one that stands in no queue says that none is known."""
    round_ = begin_round(
        Text("q"),
        [Text("a")] * 3,
        serializer=serializer("passthrough@1"),
        instruction=None,
        max_length=512,
        server_clips=True,
        route="/score",
        call_id="c",
        deadline=Deadline(1.0, lambda: 0.0),
    )
    for position, at in enumerate((0.0, 0.7, 0.8)):
        round_.leaves({position}, at)
    assert round_.queue_ms is None
    round_.gives_up(200.0, queued=True)
    round_.gives_up(300.0, queued=True)
    assert round_.queue_ms == 300.0
    round_.gives_up(100.0, queued=False)
    assert round_.queue_ms is None


@pytest.mark.parametrize(
    ("server", "fields"), [(_Batching(lost=lambda number: True), {}), (_Batching(), {"adaptive_limit": False})]
)
def test_where_no_queue_is_known_of_none_is_told(server: _Batching, fields: dict[str, object]) -> None:
    """A server that answers nobody has no queue, and where the limit is fixed queues are not told from failures."""
    played = _play(server, lambda t: 0.5 if t < 1 else 4.0, 2.0, **fields)
    assert set(played.queue_ms) == {None}
