"""A pair that several requests ask for at the same time is scored once, and nobody fails for another's fault."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from cascade.errors import StageRefused, StageTimeout, StageTooLate, StageUnreachable
from cascade.stages.verdicts import EVERY_REFUSED
from cascade.testing.clock import run_virtual
from cascade.testing.stages import ScriptedStage
from cascade.types import Arm, Exclusion, StageScores
from tests.cache.arrange import Cached, RefusesAlone, arranged, by_length


def _slow(ms: float = 100.0, **fields: Any) -> Cached:
    return arranged(ScriptedStage(by_length, delay_ms=ms, **fields))


def test_requests_for_the_same_pairs_share_a_round() -> None:
    """The first sends, the others wait for it and send only what it does not."""

    async def run() -> None:
        stage = _slow()
        first, second, third = await asyncio.gather(
            stage.score("a", "bb"), stage.score("bb", "a"), stage.score("a", "ccc")
        )
        assert (first.scores, second.scores, third.scores) == ((1.01, 2.01), (2.01, 1.01), (1.01, 3.01))
        assert stage.sent == [["a", "bb"], ["ccc"]]
        assert [scored.cost.cached for scored in (first, second, third)] == [0, 2, 1]
        assert [(found.shared, found.misses) for found in stage.looked] == [(0, 2), (2, 0), (1, 1)]
        assert sorted(stage.followed_s) == [pytest.approx(0.0), pytest.approx(0.1)]
        assert len(stage.cache.flights) == 0

    run_virtual(run())


def test_another_query_tenant_or_instruction_shares_none() -> None:
    """Only the same pair is the same work."""

    async def run() -> None:
        stage = _slow()
        await asyncio.gather(
            stage.score("a"),
            stage.score("a", query="r"),
            stage.score("a", tenant="t"),
            stage.score("a", instruction="i"),
        )
        assert len(stage.sent) == 4

    run_virtual(run())


def test_the_shadow_neither_leads_nor_follows() -> None:
    """Its rounds are the first to be given up, and nobody should wait for it."""

    async def run() -> None:
        stage = _slow()
        shadow = stage.beside(ScriptedStage(by_length, delay_ms=500), arm=Arm.SHADOW)
        async with asyncio.TaskGroup() as group:
            group.create_task(shadow.score("a"))
            await asyncio.sleep(0.01)
            group.create_task(stage.score("a"))
            await asyncio.sleep(0.01)
            group.create_task(shadow.score("a"))
        assert (stage.sent, shadow.sent) == ([["a"]], [["a"], ["a"]])

    run_virtual(run())


def test_a_leader_that_is_cancelled_hands_over() -> None:
    """Those who waited have the pairs scored again, and lose only time."""

    async def run() -> None:
        stage = _slow()
        leader = asyncio.create_task(stage.score("a"))
        await asyncio.sleep(0.01)
        followers = [asyncio.create_task(stage.score("a")) for _ in range(3)]
        await asyncio.sleep(0.01)
        leader.cancel()
        scored = await asyncio.gather(*followers)
        assert [one.scores for one in scored] == [(1.01,)] * 3
        with pytest.raises(asyncio.CancelledError):
            await leader
        assert len(stage.cache.flights) == 0
        assert all(one.cost.cached == 0 for one in scored)

    run_virtual(run())


def test_a_leader_that_fails_hands_over() -> None:
    """No follower fails for another's fault, here a leader in more of a hurry; it sends what is left by itself."""

    async def run() -> None:
        stage = _slow()
        leader = asyncio.create_task(stage.score("a", within_ms=50))
        await asyncio.sleep(0.01)
        follower = await stage.score("bb", "a", call_id="mine")
        assert follower.scores == (2.01, 1.01)
        assert follower.cost.calls == 2
        assert follower.cost.cached == 0
        with pytest.raises(StageTimeout):
            await leader
        assert stage.sent == [["a"], ["bb"], ["a"]]
        assert (await stage.score("a", "bb")).cost.cached == 2

    run_virtual(run())


def test_a_server_that_is_away_costs_a_follower_one_round_of_another() -> None:
    """It follows once; then it asks for itself and fails for itself."""

    async def run() -> None:
        stage = _slow(fails=StageUnreachable)
        ended = await asyncio.gather(*(stage.score("a") for _ in range(4)), return_exceptions=True)
        assert all(isinstance(error, StageUnreachable) for error in ended)
        assert asyncio.get_running_loop().time() == pytest.approx(0.2)
        assert len(stage.sent) == 4

    run_virtual(run())


class _OfPairs(ScriptedStage):
    """A stage that takes 5 ms a pair."""

    async def score(self, query: Any, documents: Any, **fields: Any) -> Any:
        self.delay_ms = 5.0 * len(documents)
        return await ScriptedStage.score(self, query, documents, **fields)


def test_who_has_less_time_than_a_round_under_way_does_not_wait_for_it() -> None:
    """That may be larger and in no hurry; who asks for a few of its pairs in a hurry is answered as without a cache."""

    async def run() -> None:
        stage = arranged(_OfPairs(by_length))
        many = ["a" * length for length in range(1, 101)]
        leader = asyncio.create_task(stage.score(*many))
        await asyncio.sleep(0.01)
        hurried = [asyncio.create_task(stage.score(*many[:5], within_ms=90)) for _ in range(3)]
        assert [(await one).cost.cached for one in hurried] == [0, 5, 5]
        assert asyncio.get_running_loop().time() == pytest.approx(0.035)
        assert stage.sent == [many, many[:5]]
        assert (await leader).cost.cached == 0
        assert len(stage.cache.flights) == 0

    run_virtual(run())


def test_who_waits_for_another_keeps_the_time_to_send() -> None:
    """A leader whose call hangs until its deadline costs a follower that came just after it time, and no answer."""

    async def run() -> None:
        stage = _slow(20)
        for number in range(10):
            await stage.score("a" * 40 + str(number))
        began = asyncio.get_running_loop().time()
        stage.inner.delay_ms = 1000
        leader = asyncio.create_task(stage.score("a" * 41, within_ms=100))
        await asyncio.sleep(0.01)
        stage.inner.delay_ms = 20
        follower = await stage.score("a" * 41, within_ms=100)
        assert (follower.scores, follower.cost.cached) == ((41.01,), 0)
        assert asyncio.get_running_loop().time() - began == pytest.approx(0.105)
        with pytest.raises(StageTimeout):
            await leader

    run_virtual(run())


class _Overstays(ScriptedStage):
    """A stage that is late to notice that its time is over."""

    async def score(self, *args: Any, **fields: Any) -> Any:
        try:
            return await ScriptedStage.score(self, *args, **fields)
        except StageTimeout:
            await asyncio.sleep(1)
            raise


def test_a_follower_waits_no_longer_than_its_own_deadline() -> None:
    """Whatever keeps the leader."""

    async def run() -> None:
        stage = arranged(_Overstays(by_length, delay_ms=100))
        leader = asyncio.create_task(stage.score("a", within_ms=30))
        await asyncio.sleep(0.01)
        with pytest.raises(StageTimeout) as raised:
            await stage.score("a", within_ms=30)
        assert raised.value.sent == 0
        assert asyncio.get_running_loop().time() == pytest.approx(0.04)
        with pytest.raises(StageTimeout):
            await leader

    run_virtual(run())


def test_a_round_of_documents_that_another_had_refused_fails_as_alone() -> None:
    """What was refused for others among more is refused; what is asked for of nothing else is no round."""

    async def run() -> None:
        stage = arranged(RefusesAlone(by_length, delay_ms=10, refuses=lambda text: text == "bb"))
        leader = asyncio.create_task(stage.score("a", "bb"))
        await asyncio.sleep(0)
        follower = asyncio.create_task(stage.score("a", "bb", "bb"))
        with pytest.raises(StageRefused, match=EVERY_REFUSED) as raised:
            await stage.score("bb")
        assert raised.value.sent == 0
        assert (await follower).scores == (1.01, None, None)
        assert (await follower).cost.cached == 1
        assert (await leader).excluded == {1: Exclusion.REFUSED}
        assert stage.sent == [["a", "bb"]]

    run_virtual(run())


def test_a_round_whose_every_document_was_refused_is_no_answer_to_others() -> None:
    """It does not count: a follower finds out for itself, and its other documents keep their scores."""

    async def run() -> None:
        stage = arranged(RefusesAlone(by_length, delay_ms=100, refuses=lambda text: text == "bb"))
        leader = asyncio.create_task(stage.score("bb"))
        await asyncio.sleep(0.01)
        follower = await stage.score("a", "bb")
        assert follower.scores == (1.01, None)
        assert follower.excluded == {1: Exclusion.REFUSED}
        with pytest.raises(StageRefused, match=EVERY_REFUSED):
            await leader
        assert stage.sent == [["bb"], ["a"], ["bb"]]

    run_virtual(run())


def test_an_exception_of_ours_in_a_leader_hands_over_too() -> None:
    """Whatever ends a round, nobody waits for it for ever."""

    async def run() -> None:
        stage = _slow(fails=ValueError("a fault of ours"))
        leader = asyncio.create_task(stage.score("a"))
        await asyncio.sleep(0.01)
        follower = asyncio.create_task(stage.score("a"))
        with pytest.raises(ValueError, match="a fault of ours"):
            await leader
        stage.inner.fails = None
        assert (await follower).scores == (1.01,)

    run_virtual(run())


@pytest.mark.parametrize("seed", range(20))
def test_in_any_storm_every_answer_is_right_and_nothing_is_left_behind(seed: int) -> None:
    """Requests that come, go and run out of time at random: each that is answered has its own documents' scores."""

    async def run() -> None:
        draw = random.Random(seed)  # noqa: S311 - a storm to be repeated
        stage = _slow()
        names = ["a" * length for length in range(1, 8)]

        async def request() -> tuple[list[str], StageScores | None]:
            await asyncio.sleep(draw.random())
            wanted = draw.sample(names, draw.randint(1, 5))
            stage.inner.delay_ms = draw.choice((10, 100, 300))
            task = asyncio.create_task(stage.score(*wanted, query=draw.choice("qr"), within_ms=draw.choice((50, 400))))
            if draw.random() < 0.2:
                await asyncio.sleep(draw.random() / 5)
                task.cancel()
            try:
                return wanted, await task
            except (StageTimeout, StageTooLate, asyncio.CancelledError):
                return wanted, None

        ended = await asyncio.gather(*(request() for _ in range(60)))
        answered = [(wanted, scored) for wanted, scored in ended if scored is not None]
        assert answered
        for wanted, scored in answered:
            assert scored.scores == tuple(len(name) + 0.01 for name in wanted)
        assert len(stage.cache.flights) == 0

    run_virtual(run())
