"""A stage used by those whom nobody waits for: only what room is left over, and never a word to its guards."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import httpx
import pytest

from cascade.errors import StageBreakerOpen, StageError, StageOverloaded, StageTimeout, StageUnreachable
from cascade.guard.aside import aside, has_room_aside, is_aside
from cascade.guard.deadline import Deadline
from cascade.guard.events import GuardEvents
from cascade.guard.inflight import TextLimiter
from cascade.rollout.shadow.aside_stage import AsideStage, AsideStages
from cascade.stages.base import Congestion, Stage
from cascade.testing.clock import run_virtual
from cascade.testing.upstream import FakeTei, FakeVllm
from cascade.text import Text
from cascade.types import BreakerState, RetryOutcome, StageName, StageScores
from tests.rollout.shadows import ANIMALS, Pair, asked, scored_by
from tests.stages.arrange import running, score, tei_spec, vllm_spec


def _aside(stage: Stage) -> AsideStage:
    return AsideStage(stage, asyncio.get_running_loop().time, lambda: False)


async def _score(stage: AsideStage, texts: Sequence[str], *, within_ms: float = 1000.0) -> StageScores:
    deadline = Deadline.after_ms(within_ms, asyncio.get_running_loop().time)
    return await stage.score(Text("q"), [Text(text) for text in texts], deadline=deadline, call_id="call")


def test_aside_holds_inside_its_block_and_for_tasks_begun_there() -> None:
    """A task begun outside is not affected, and after the block nothing is."""

    async def told() -> bool:
        await asyncio.sleep(0)
        return is_aside()

    async def play() -> list[bool]:
        outside = asyncio.create_task(told())
        with aside():
            inside = asyncio.create_task(told())
            seen = [is_aside()]
        return [*seen, is_aside(), await outside, await inside]

    assert run_virtual(play()) == [True, False, False, True]


def test_half_of_the_room_stays_free_and_none_goes_before_who_waits() -> None:
    """Of ten texts: five go, a sixth does not; an empty room takes whatever is smaller than it, or larger."""

    async def play() -> None:
        room = TextLimiter(10, 100)
        assert has_room_aside(room, 20, 1000)
        async with room.hold(2, 20):
            assert has_room_aside(room, 3, 30)
            assert not has_room_aside(room, 4, 30)
            assert not has_room_aside(room, 3, 31)
            waits = asyncio.create_task(room.hold(9).__aenter__())
            await asyncio.sleep(0)
            assert not has_room_aside(room, 1, 1)
            waits.cancel()
            await asyncio.gather(waits, return_exceptions=True)

    run_virtual(play())


def test_scores_are_those_of_the_stage_in_order() -> None:
    """A round larger than half of the room goes part by part, each under an id of its own, and joins in order."""

    async def play() -> tuple[StageScores, list[int], list[str]]:
        server = FakeTei(score_of=lambda query, text: float(text), delay_ms=10)
        async with running(server, tei_spec(max_in_flight_texts=8)) as stage:
            scored = await _score(_aside(stage), [str(number) for number in range(10)])
        ids = [seen.headers["x-request-id"] for seen in server.posts]
        return scored, [len(seen.body["texts"]) for seen in server.posts], ids

    scored, sizes, ids = run_virtual(play())
    assert scored.scores == tuple(map(float, range(10)))
    assert (sizes, scored.cost.calls) == ([4, 4, 2], 3)
    assert len(set(ids)) == 3
    assert all(each.startswith("call-part") for each in ids)


def test_parts_keep_to_half_of_the_tokens_too() -> None:
    """Each text has about 60 tokens, of 400 that may be under way: three a part."""

    async def play() -> list[int]:
        server = FakeTei()
        async with running(server, tei_spec(max_in_flight_tokens=400)) as stage:
            await _score(_aside(stage), ["word " * 40] * 7)
        return [len(seen.body["texts"]) for seen in server.posts]

    assert run_virtual(play()) == [3, 3, 1]


def test_the_tokens_of_a_template_and_an_instruction_count_too() -> None:
    """Three pairs are a part, of two calls: had a call more tokens than were counted, the one behind it would find no room, at an idle server."""

    async def play() -> tuple[int, int]:
        server = FakeVllm(delay_ms=10)
        spec = vllm_spec(max_in_flight_tokens=800, chunk_texts=2, serializer="qwen3-reranker@1")
        async with running(server, spec) as stage:
            scored = await _score(_aside(stage), ["word " * 12] * 10)
        return len(scored.scores), len(server.posts)

    assert run_virtual(play()) == (10, 7)


def test_without_room_it_waits_beside_the_line_and_not_in_it() -> None:
    """Requests hold half: nothing is sent and nobody waits behind it. Once they have left it goes, if its time allows."""

    async def play() -> None:
        server = FakeTei(delay_ms=50)
        async with running(server, tei_spec(max_in_flight_texts=4)) as stage:
            user = asyncio.create_task(score(stage, "q", ["a", "b"]))
            await asyncio.sleep(0.01)
            with pytest.raises(StageOverloaded) as refused:
                await _score(_aside(stage), ["c"], within_ms=20)
            assert (refused.value.code, refused.value.sent, len(server.posts)) == ("waiting_for_room", 0, 1)
            waits = asyncio.create_task(_score(_aside(stage), ["c"]))
            await asyncio.sleep(0.01)
            assert (stage.room.waiting, len(server.posts), user.done()) == (0, 1, False)
            assert (await waits).scores
            assert user.done()
            assert asyncio.get_running_loop().time() == pytest.approx(0.1)

    run_virtual(play())


def test_chunks_that_find_no_room_go_once_there_is_some() -> None:
    """Requests may take the room between a part's begin and its chunks: it gives way, and begins again behind them."""

    async def play() -> None:
        server = FakeTei(delay_ms=50)
        async with running(server, tei_spec(max_in_flight_texts=8, chunk_texts=1)) as stage:
            round_ = asyncio.create_task(_score(_aside(stage), ["a", "b", "c", "d"]))
            # Its chunks begin in tasks of their own, a turn later than these requests.
            users = [asyncio.create_task(score(stage, "q", ["x"])) for _ in range(5)]
            assert len((await round_).scores) == 4
            await asyncio.gather(*users)
            assert asyncio.get_running_loop().time() == pytest.approx(0.1)
            texts = [seen.body["texts"] for seen in server.posts]
            assert texts == [["x"]] * 5 + [["a"], ["b"], ["c"], ["d"]]
            assert stage.room.in_flight == 0

    run_virtual(play())


def test_a_round_goes_in_parts_as_large_as_the_room_that_is_left_over() -> None:
    """One request of two texts after the other leaves two of four: twelve texts go two by two, and no request waits."""

    async def play() -> tuple[list[int], list[float]]:
        server, took = FakeTei(delay_ms=10), []
        async with running(server, tei_spec(max_in_flight_texts=8)) as stage:
            clock = asyncio.get_running_loop().time

            async def ask() -> None:
                while True:
                    began = clock()
                    await score(stage, "q", ["user"] * 2)
                    took.append(clock() - began)

            users = asyncio.create_task(ask())
            await asyncio.sleep(0.005)
            scored = await _score(_aside(stage), [str(number) for number in range(12)])
            assert len(scored.scores) == 12
            users.cancel()
            await asyncio.gather(users, return_exceptions=True)
        texts = [seen.body["texts"] for seen in server.posts]
        return [len(each) for each in texts if "user" not in each], took

    sizes, took = run_virtual(play())
    assert sizes == [2] * 6
    assert took == [pytest.approx(0.01)] * len(took)
    assert len(took) >= 5


def test_a_limit_that_was_found_out_from_small_calls_lets_the_whole_depth_through() -> None:
    """Requests escalate two documents each, one call always under way: rounds of fifty beside them end all the same."""

    async def play() -> tuple[int, list[float]]:
        server, took = FakeTei(delay_ms=20), []
        async with running(server, tei_spec()) as stage:
            clock = asyncio.get_running_loop().time

            async def ask() -> None:
                while True:
                    began = clock()
                    await score(stage, "q", ["word " * 40] * 2)
                    took.append(clock() - began)

            users = [asyncio.create_task(ask()) for _ in range(2)]
            await asyncio.sleep(2)
            limit = stage.room.limit
            for _ in range(10):
                await _score(_aside(stage), ["word " * 40] * 50, within_ms=2000)
            for each in users:
                each.cancel()
            await asyncio.gather(*users, return_exceptions=True)
        return limit, took

    limit, took = run_virtual(play())
    assert limit < 50
    assert took == [pytest.approx(0.02)] * len(took)


def test_load_ends_a_round_between_its_parts() -> None:
    """What is under way ends; nothing more leaves, though there is room."""

    async def play() -> int:
        server, loaded = FakeTei(delay_ms=10), False
        async with running(server, tei_spec(max_in_flight_texts=8)) as stage:
            beside = AsideStage(stage, asyncio.get_running_loop().time, lambda: loaded)
            round_ = asyncio.create_task(_score(beside, ["a"] * 12))
            await asyncio.sleep(0.005)
            loaded = True
            with pytest.raises(StageOverloaded, match="paused"):
                await round_
        return len(server.posts)

    assert run_virtual(play()) == 1


def test_parts_are_not_smaller_than_half_of_what_an_empty_room_takes() -> None:
    """Room for one text of four is left over: it waits for more in place of a dozen calls of one text each."""

    async def play() -> list[int]:
        server = FakeTei(delay_ms=10)
        async with running(server, tei_spec(max_in_flight_texts=8)) as stage:
            user = asyncio.create_task(score(stage, "q", ["user"] * 3))
            await asyncio.sleep(0.005)
            await _score(_aside(stage), ["a"] * 5)
            await user
        return [len(seen.body["texts"]) for seen in server.posts]

    assert run_virtual(play()) == [3, 4, 1]


def test_rounds_of_its_kind_wait_for_each_other() -> None:
    """Two rounds of half the room each go one after the other, and none is lost."""

    async def play() -> float:
        server = FakeTei(delay_ms=50)
        async with running(server, tei_spec(max_in_flight_texts=8)) as stage:
            beside = _aside(stage)
            await asyncio.gather(*(_score(beside, ["a", "b", "c", "d"]) for _ in range(3)))
        return asyncio.get_running_loop().time()

    assert run_virtual(play()) == pytest.approx(0.15)


def test_what_has_begun_and_not_left_yet_is_in_the_way_too() -> None:
    """Chunks leave a turn after their round began: three rounds of a quarter of the room take two turns, none is lost."""

    async def play() -> float:
        server = FakeTei(delay_ms=50)
        async with running(server, tei_spec(max_in_flight_texts=8, chunk_texts=1)) as stage:
            beside = _aside(stage)
            await asyncio.gather(*(_score(beside, ["a", "b"]) for _ in range(3)))
        return asyncio.get_running_loop().time()

    assert run_virtual(play()) == pytest.approx(0.1)


def test_releases_that_share_a_stage_share_its_turns() -> None:
    """One view of a stage, whichever release uses it: else two would wait for nothing of each other's."""
    stages = AsideStages(lambda: 0.0)
    stage, other = scored_by("abcde"), scored_by("abcde")
    one = stages.of({StageName.SMALL: stage})[StageName.SMALL]
    assert stages.of({StageName.LARGE: stage})[StageName.LARGE] is one
    assert stages.of({StageName.SMALL: other})[StageName.SMALL] is not one


def test_it_never_retries_and_earns_no_retries() -> None:
    """A call that would be made again for a request is made once; answers here pay for no retry there."""
    retries: list[RetryOutcome] = []

    async def play() -> None:
        server = FakeTei()
        async with running(server, tei_spec(), events=GuardEvents(retried=retries.append)) as stage:
            for _ in range(10):
                await score(stage, "q", ["a"])  # they pay for one retry
            server.script, server.seen = [httpx.ConnectError("m")], []
            with pytest.raises(StageUnreachable):
                await _score(_aside(stage), ["a"])
            assert len(server.posts) == 1
            assert retries == []
            for _ in range(100):
                await _score(_aside(stage), ["a"])
            server.script = [httpx.ConnectError("m")]
            await score(stage, "q", ["a"])  # the one is still there
            server.script = [httpx.ConnectError("m")]
            with pytest.raises(StageUnreachable):
                await score(stage, "q", ["a"])  # and there is no other

    run_virtual(play())
    assert retries == [RetryOutcome.ANSWERED, RetryOutcome.NO_BUDGET]


def test_its_failures_open_no_breaker_and_shrink_no_limit() -> None:
    """Rounds that fail, are refused or hang: requests are let through as before, with the time that they have."""
    states: list[BreakerState] = []

    async def play() -> None:
        server = FakeTei()
        async with running(server, tei_spec(), budget_ms=100, events=GuardEvents(breaker=states.append)) as stage:
            for _ in range(20):
                await score(stage, "q", ["a"])
            before = stage.guarded
            beside = _aside(stage)
            server.script = [*[httpx.Response(500)] * 10, *[httpx.Response(429)] * 10]
            for _ in range(20):
                with pytest.raises(StageError, match=r"status_500|status_429"):
                    await _score(beside, ["a"])
            server.hangs = True
            for _ in range(10):
                with pytest.raises(StageTimeout):
                    await _score(beside, ["a"], within_ms=500)
            server.hangs = False
            assert stage.guarded == before
            assert (await score(stage, "q", ["a"], within_ms=5)).scores

    run_virtual(play())
    assert states == []


def test_its_slow_rounds_are_no_failures_and_teach_no_expected_time() -> None:
    """The whole depth takes longer than any request's round: else each would count as a slow call."""

    async def play() -> None:
        server = FakeTei(delay_ms=300)
        async with running(server, tei_spec(), budget_ms=100) as stage:
            beside = _aside(stage)
            for _ in range(20):
                await _score(beside, ["a"])
            assert stage.guarded.breaker is BreakerState.CLOSED
            server.delay_ms = 1
            await score(stage, "q", ["a"], within_ms=20)  # an expected 300 ms would have refused it

    run_virtual(play())


def test_a_breaker_that_is_not_closed_lets_none_through() -> None:
    """Also once its time is over: the trial rounds are for requests that somebody waits for."""

    async def play() -> None:
        server = FakeTei()
        async with running(server, tei_spec()) as stage:
            server.script = [httpx.Response(401)] * 5
            for _ in range(5):
                with pytest.raises(Exception, match="unauthorized"):
                    await score(stage, "q", ["a"])
            await asyncio.sleep(60)
            server.seen.clear()
            with pytest.raises(StageBreakerOpen):
                await _score(_aside(stage), ["a"])
            assert server.posts == []
            for _ in range(3):
                await score(stage, "q", ["a"])
            assert (await _score(_aside(stage), ["a"])).scores

    run_virtual(play())


def test_a_server_that_tells_of_a_queue_is_not_asked() -> None:
    """More waits there than half of what may be under way; a signal that has grown old says nothing."""

    async def play() -> None:
        server = FakeTei(metrics="te_queue_size 600\n")
        async with running(server, tei_spec()) as stage:
            await asyncio.sleep(1)
            with pytest.raises(StageOverloaded):
                await _score(_aside(stage), ["a"])
            server.metrics = "te_queue_size 2\n"
            await asyncio.sleep(6)
            assert (await _score(_aside(stage), ["a"])).scores

    run_virtual(play())


def test_an_old_signal_of_a_queue_is_no_signal() -> None:
    """What is stale is unknown; the room still bounds it."""
    stale = Congestion(at=-60.0, waiting=1000)

    async def play() -> StageScores:
        return await _score(_aside(scored_by("abcde", congestion=stale)), ["ant"])

    assert run_virtual(play()).scores == (0.0,)


def test_a_stage_inside_the_sidecar_is_used_a_little_at_a_time() -> None:
    """There is no room to be told of: four texts at once, one round at a time."""
    stage = scored_by("abcde", delay_ms=10)

    async def play() -> float:
        beside = _aside(stage)
        await asyncio.gather(_score(beside, ["a"] * 6), _score(beside, ["b"] * 2))
        return asyncio.get_running_loop().time()

    assert run_virtual(play()) == pytest.approx(0.03)
    assert sorted(map(len, stage.calls)) == [2, 2, 4]


def test_it_says_of_itself_what_the_stage_says() -> None:
    """All but what is expected of its rounds, which it keeps for itself; it neither starts nor closes the stage."""
    stage = scored_by("abcde", takes_instruction=True)

    async def play() -> None:
        beside = _aside(stage)
        assert (beside.fingerprint, beside.space, beside.observed) == (stage.fingerprint, stage.space, None)
        assert (beside.unusable, beside.congestion, beside.guarded) == (None, None, None)
        assert beside.takes_instruction
        assert beside.expected is not stage.expected
        await beside.start()
        assert await beside.look_again() is False
        stage.back.set()
        await beside.returned()
        await beside.aclose()

    run_virtual(play())
    assert stage.looks == 1


def test_h4_the_request_at_the_server_names_the_candidates_model() -> None:
    """A mirrored request that kept the model of the stable release would be billed and scored as that one's."""

    async def play() -> list[tuple[str, str]]:
        server = FakeVllm()
        server.score_of = lambda query, text: -float(ord(text[0]))
        async with running(server, vllm_spec(model="fake/reranker")) as stage:
            pair = Pair(tried=stage, large=scored_by("abcde", "stable-large"))
            pair.open()
            await pair.answer(asked(ANIMALS))
            await pair.settled(1.0)
            assert pair.outcomes == {"compared": 1}
        return [(seen.body["model"], seen.headers["x-request-id"]) for seen in server.posts]

    ((model, request_id),) = run_virtual(play())
    assert model == "fake/reranker"
    assert "-shadow-small" in request_id


def test_users_of_a_shared_stage_wait_for_nothing_of_a_hanging_shadow() -> None:
    """The candidate shares the stable release's server: as many requests as half of the room go through at once."""

    async def play() -> list[float]:
        server = FakeTei(delay_ms=10, hangs=True)
        took: list[float] = []
        async with running(server, tei_spec(max_in_flight_texts=8)) as stage:
            shadow = asyncio.create_task(_score(_aside(stage), ["a"] * 4, within_ms=5000))
            await asyncio.sleep(0.02)
            server.hangs = False
            for _ in range(10):
                began = asyncio.get_running_loop().time()
                await score(stage, "q", ["a"] * 4)
                took.append(asyncio.get_running_loop().time() - began)
            shadow.cancel()
            await asyncio.gather(shadow, return_exceptions=True)
            assert stage.room.in_flight == 0
        return took

    assert run_virtual(play()) == [pytest.approx(0.01)] * 10
