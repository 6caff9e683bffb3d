"""Discovery: limits are learned when the server can tell them, now or later, and nothing waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import cast

import httpx
import pytest

from cascade.errors import StageUnreachable
from cascade.policy.release import HttpStage
from cascade.stages.base import Observed
from cascade.stages.http import HttpReranker
from cascade.stages.upstream import Reply, Upstream
from cascade.stages.wire import Getter, Wire
from cascade.testing.clock import run_virtual
from cascade.testing.upstream import FakeServer, FakeTei, FakeVllm

from .arrange import score, stage_before, tei_spec, vllm_spec


@dataclass
class Waking:
    """Stand before a server whose first answers to GET are not its own. None means that it never answers."""

    server: FakeServer
    first: list[httpx.Response | Exception | None] = field(default_factory=list)
    gets: int = 0

    async def __call__(self, request: httpx.Request) -> httpx.Response:
        if request.method == "GET" and request.url.path != "/metrics":
            self.gets += 1
            if self.first:
                match self.first.pop(0):
                    case None:
                        await asyncio.sleep(10**6)
                    case Exception() as error:
                        raise error
                    case answer:
                        return answer
        return await self.server(request)

    def before(
        self, spec: HttpStage, count_fault: Callable[[BaseException], None] = lambda error: None
    ) -> HttpReranker:
        """Return a stage whose requests pass here."""
        return stage_before(httpx.MockTransport(self), spec, count_fault)


async def eventually(true: Callable[[], bool]) -> None:
    """Wait for something to come true, for two virtual minutes at most."""
    for _ in range(1200):
        if true():
            return
        await asyncio.sleep(0.1)
    raise AssertionError("it never came true")


@pytest.mark.parametrize(
    "failure",
    [
        httpx.ConnectError("m"),
        httpx.ReadError("m"),
        None,
        httpx.Response(429),
        httpx.Response(500),
        httpx.Response(502),
        httpx.Response(503),
        httpx.Response(405),
        httpx.Response(301),
        httpx.Response(400),
        httpx.Response(403),
        httpx.Response(406),
        httpx.Response(501),
    ],
    ids=["refused", "cut", "silent", "429", "500", "502", "503", "405", "301", "400", "403", "406", "501"],
)
def test_limits_are_learned_once_the_server_can_tell_them(failure: httpx.Response | Exception | None) -> None:
    """A server that starts after the sidecar is asked again in the background, and its limits then hold."""

    async def play() -> None:
        waking = Waking(FakeTei(max_client_batch_size=4), [failure] * 5)
        stage = waking.before(tei_spec())
        began = asyncio.get_running_loop().time()
        await stage.start()
        assert asyncio.get_running_loop().time() - began <= 2.0
        if failure is None:
            assert stage.observed is None
        assert stage.unusable is None
        await eventually(lambda: stage.observed is not None)
        assert stage.unusable is None
        await score(stage, "q", ["a"] * 6)
        assert [len(seen.body["texts"]) for seen in waking.server.posts] == [4, 2]
        assert waking.gets == 6
        await stage.aclose()

    run_virtual(play())


def test_the_start_waits_for_a_silent_server_two_seconds_at_most() -> None:
    """A server that accepts and never answers does not hold up the sidecar."""

    async def play() -> None:
        waking = Waking(FakeTei(), [None] * 100)
        stage = waking.before(tei_spec())
        await stage.start()
        assert asyncio.get_running_loop().time() == pytest.approx(2.0)
        assert stage.observed is None
        await stage.aclose()

    run_virtual(play())


def test_rounds_are_scored_before_limits_are_known() -> None:
    """Until the server has told its limits, the declared ones and the defaults hold."""

    async def play() -> None:
        waking = Waking(FakeTei(), [None] * 100)
        stage = waking.before(tei_spec())
        await stage.start()
        scored = await score(stage, "q", ["q"] * 40)
        assert len(scored.scores) == 40
        assert [len(seen.body["texts"]) for seen in waking.server.posts] == [32, 8]
        await stage.aclose()

    run_virtual(play())


def test_permits_learned_while_rounds_wait_strand_none_of_them() -> None:
    """A lower bound that is learned late holds for who waits already: no call waits for room that never comes."""

    async def play() -> None:
        server = FakeTei(delay_ms=100, max_concurrent_requests=3)
        waking = Waking(server, [None, httpx.ConnectError("m")])
        stage = waking.before(tei_spec(max_in_flight_texts=10, chunk_texts=8))
        await stage.start()
        rounds = [asyncio.create_task(score(stage, "q", ["q"] * 20, within_ms=60_000)) for _ in range(5)]
        await eventually(lambda: stage.observed is not None)
        for scored in await asyncio.gather(*rounds):
            assert None not in scored.scores
        await score(stage, "q", ["q"] * 7)
        assert [len(seen.body["texts"]) for seen in server.posts[-3:]] == [3, 3, 1]
        await stage.aclose()

    run_virtual(play())


def test_the_declared_length_is_never_raised_by_the_server() -> None:
    """A server that can read longer pairs does not change what a release says is read."""

    async def play() -> None:
        server = FakeTei(max_length=8_192)
        stage = Waking(server).before(tei_spec(max_length=64))
        await stage.start()
        await score(stage, "q", ["x" * 10_000])
        assert len(server.posts[0].body["texts"][0]) == 64 * 24
        await stage.aclose()

    run_virtual(play())


def test_a_refused_server_is_asked_again_until_it_is_put_right() -> None:
    """A wrong key makes the stage unusable; once the server takes it, the stage serves without a restart."""

    async def play() -> None:
        refusals: list[httpx.Response | Exception | None] = [httpx.Response(401, json={"error": "Unauthorized"})] * 3
        waking = Waking(FakeVllm(), refusals)
        stage = waking.before(vllm_spec())
        await stage.start()
        assert stage.unusable == "unauthorized"
        assert stage.observed is None
        await asyncio.sleep(600)
        assert stage.unusable is None
        assert stage.observed is not None
        await stage.aclose()

    run_virtual(play())


def test_closing_ends_discovery_that_is_under_way() -> None:
    """A stage that is closed leaves no task behind, whether it asks or waits to ask again."""

    async def play() -> None:
        for failure in (None, httpx.ConnectError("m")):
            stage = Waking(FakeTei(), [failure] * 10**4).before(tei_spec())
            await stage.start()
            await asyncio.sleep(30)
            began = asyncio.get_running_loop().time()
            await stage.aclose()
            assert asyncio.get_running_loop().time() == began
            assert asyncio.all_tasks() == {asyncio.current_task()}

    run_virtual(play())


def test_a_stage_that_was_never_started_can_be_closed() -> None:
    """A start that failed elsewhere closes what was made."""

    async def play() -> None:
        await Waking(FakeTei()).before(tei_spec()).aclose()

    run_virtual(play())


def test_asking_again_never_waits_longer_than_half_a_minute() -> None:
    """However long a server was away, its limits are learned soon after it is back."""

    async def play() -> None:
        waking = Waking(FakeTei(), [httpx.ConnectError("m") for _ in range(10**4)])
        stage = waking.before(tei_spec())
        await stage.start()
        await asyncio.sleep(7_200)
        waking.first.clear()
        await asyncio.sleep(30)
        assert stage.observed is not None
        await stage.aclose()

    run_virtual(play())


@pytest.mark.parametrize("lost", [httpx.ConnectError("m"), None, httpx.Response(500)], ids=["refused", "silent", "500"])
def test_a_version_that_is_not_told_costs_no_limit(lost: httpx.Response | Exception | None) -> None:
    """The longest pair of the list of models is kept, whatever becomes of the question for the version."""

    @dataclass
    class NoVersion(Waking):
        async def __call__(self, request: httpx.Request) -> httpx.Response:
            self.first = [lost] if request.url.path == "/version" else []
            return await super().__call__(request)

    async def play() -> None:
        stage = NoVersion(FakeVllm(max_length=64)).before(vllm_spec())
        await stage.start()
        await eventually(lambda: stage.observed is not None)
        assert stage.observed == Observed(model="fake/reranker", version=None, max_length=64)
        await stage.aclose()

    run_virtual(play())


@pytest.mark.parametrize("odd", [UnicodeEncodeError("ascii", "canary", 0, 1, "m"), RuntimeError("m"), KeyError("m")])
def test_a_fault_of_ours_is_counted_and_the_server_asked_again(odd: Exception) -> None:
    """Nothing that goes wrong in the background ends the asking, be it for limits or for load."""

    class Odd:
        """Fail in the parser of limits first, then in the reading of load."""

        routes = ("/rerank",)
        texts_by_default = 8
        most_texts = most_characters = None
        clips = takes_instruction = False
        load_route = "/metrics"
        faults = 0

        async def discover(self, get: Getter) -> Observed:
            self.faults += 1
            if self.faults <= 3:
                raise odd
            return Observed(max_length=64)

    class BrokenUpstream(Upstream):
        """Fail while the load is read."""

        looks = 0

        async def get(self, path: str, *, request_id: str) -> Reply:
            self.looks += 1
            if self.looks <= 2:
                raise odd
            return Reply(200, {}, b"te_queue_size 4\n")

    async def play() -> None:
        counted: list[BaseException] = []
        clock = asyncio.get_running_loop().time
        upstream = BrokenUpstream("http://reranker.test", httpx.AsyncBaseTransport(), connect_ms=1000)
        wire = cast("Wire", Odd())
        stage = HttpReranker("large", tei_spec(), wire, upstream, clock, counted.append)
        await stage.start()
        await eventually(lambda: stage.congestion is not None)
        assert stage.observed == Observed(max_length=64)
        assert counted == [odd] * 5
        await stage.aclose()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    run_virtual(play())


def test_b2_every_look_has_an_id_of_its_own() -> None:
    """Questions for limits and for load carry request ids that no other call has, on any sidecar."""

    async def play() -> None:
        servers = [FakeVllm(), FakeVllm()]
        stages = [Waking(server).before(vllm_spec()) for server in servers]
        for stage in stages:
            await stage.start()
        await asyncio.sleep(20)
        for stage in stages:
            await stage.aclose()
        ids = [seen.headers["x-request-id"] for server in servers for seen in server.seen]
        assert len(ids) >= 6
        assert len(set(ids)) == len(ids)

    run_virtual(play())


def _looked_again(answer: httpx.Response | Exception | FakeServer) -> tuple[bool, Observed | None, list[BaseException]]:
    """Start before a server; look again when it answers otherwise. Return what was said, what is known, and faults."""

    async def play() -> tuple[bool, Observed | None, list[BaseException]]:
        faults: list[BaseException] = []
        waking = Waking(FakeTei())
        stage = waking.before(tei_spec(), faults.append)
        await stage.start()
        if isinstance(answer, FakeServer):
            waking.server = answer
        else:
            waking.first = [answer]
        said = await stage.look_again()
        observed = stage.observed
        await stage.aclose()
        return said, observed, faults

    return run_virtual(play())


_FIRST = Observed("fake/reranker", None, "float16", "1.9.0", 512, 32, 512)


def test_a_second_look_learns_what_a_server_says_now() -> None:
    """Another server at the same address is known for what it is, with its limits."""
    said, observed, _ = _looked_again(FakeTei(version="1.8", max_client_batch_size=4))
    assert said
    assert observed == Observed("fake/reranker", None, "float16", "1.8.0", 512, 4, 512)


def test_a_second_look_at_the_same_server_changes_nothing() -> None:
    """It said the same."""
    assert _looked_again(FakeTei()) == (True, _FIRST, [])


@pytest.mark.parametrize(
    "answer",
    [
        httpx.ConnectError("m"),
        httpx.Response(503),
        httpx.Response(401),
        httpx.Response(404),
        FakeTei(model_type="embedding"),
    ],
    ids=["refused", "503", "401", "404", "no reranker"],
)
def test_a_second_look_that_is_told_nothing_leaves_what_is_known(
    answer: httpx.Response | Exception | FakeServer,
) -> None:
    """A gateway may answer for a server that is away; whether a server scores, rounds tell by themselves."""
    assert _looked_again(answer) == (False, _FIRST, [])


def test_a_second_look_before_the_first_has_an_answer_says_nothing() -> None:
    """The first goes on by itself."""

    async def play() -> None:
        waking = Waking(FakeTei(), [httpx.ConnectError("m")] * 1000)
        stage = waking.before(tei_spec())
        await stage.start()
        gets = waking.gets
        assert not await stage.look_again()
        assert waking.gets == gets
        await stage.aclose()

    run_virtual(play())


def test_a_server_is_known_from_a_look_until_it_is_lost() -> None:
    """What answers after a call was lost may be another; until it was looked at, nobody knows. Nor before the first look."""

    async def play() -> None:
        waking = Waking(FakeTei(), [httpx.ConnectError("m")])
        stage = waking.before(tei_spec(retries=0))
        assert not stage.is_identified
        await stage.start()
        assert not stage.is_identified
        await eventually(lambda: stage.is_identified)
        waking.server.script = [httpx.ConnectError("m")]
        with pytest.raises(StageUnreachable):
            await score(stage, "q", ["a"])
        assert not stage.is_identified
        await score(stage, "q", ["a"])
        assert not stage.is_identified
        waking.first = [httpx.Response(503)]
        assert not await stage.look_again()
        assert not stage.is_identified
        assert await stage.look_again()
        assert stage.is_identified
        await stage.aclose()

    run_virtual(play())


def test_a_look_during_which_a_call_is_lost_says_nothing_for_certain() -> None:
    """The server may have gone behind what it said."""

    async def play() -> None:
        waking = Waking(FakeTei())
        stage = waking.before(tei_spec(retries=0))
        await stage.start()

        async def answer_late(request: httpx.Request) -> httpx.Response:
            if request.method == "GET":
                await asyncio.sleep(0.5)
            return await waking(request)

        stage = stage_before(httpx.MockTransport(answer_late), tei_spec(retries=0))
        await stage.start()
        assert stage.is_identified
        look = asyncio.create_task(stage.look_again())
        await asyncio.sleep(0.1)
        waking.server.script = [httpx.ConnectError("m")]
        with pytest.raises(StageUnreachable):
            await score(stage, "q", ["a"])
        assert await look
        assert not stage.is_identified
        await stage.aclose()

    run_virtual(play())
