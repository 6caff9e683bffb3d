"""Whose scores are kept: those of a server that is known to be what it was."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from cascade.guard.deadline import Deadline
from cascade.stages.base import Observed
from cascade.testing.clock import run_virtual
from cascade.testing.stages import ScriptedStage
from cascade.text import Text
from tests.cache.arrange import arranged, by_length, cache_of, texts


def test_scores_are_kept_only_where_it_is_known_who_asks() -> None:
    """A caller that does not say for whom it asks, a probe for one, shares nothing."""

    async def run() -> None:
        stage = arranged()
        for _ in range(2):
            await stage.stage.score(
                Text("q"), texts("a"), deadline=Deadline.after_ms(100, stage.cache.clock), call_id="call"
            )
        assert stage.sent == [["a"], ["a"]]
        assert stage.looked == []

    run_virtual(run())


def test_scores_of_a_server_that_is_not_as_declared_are_neither_kept_nor_answered() -> None:
    """What it scores holds for nothing but the moment."""

    async def run() -> None:
        stage = arranged(cache=cache_of(is_as_declared=lambda spec, said: said.model == spec.model))
        stage.inner.observed = Observed(model="m")
        await stage.score("a")
        stage.inner.observed = Observed(model="other")
        await stage.score("a")
        await stage.score("a")
        assert stage.stage.identity() is None
        stage.inner.observed = Observed(model="m")
        await stage.score("a")
        assert stage.sent == [["a"], ["a"], ["a"]]

    run_virtual(run())


def test_f1_a_server_that_came_back_as_another_misses() -> None:
    """Entries made before are not answered any more; where it becomes what it was, they are."""

    async def run() -> None:
        stage = arranged()
        stage.inner.observed = Observed(revision="one")
        await stage.score("a")
        stage.inner.observed = Observed(revision="two")
        await stage.score("a")
        stage.inner.observed = Observed(revision="one")
        await stage.score("a")
        assert stage.sent == [["a"], ["a"]]

    run_virtual(run())


def test_f1_weights_that_were_replaced_in_their_folder_miss() -> None:
    """A cache that outlives the process answers nothing that another file scored, though all is declared as before."""

    async def run() -> None:
        first = arranged()
        first.inner.observed = Observed(model="m", weights_sha256="1" * 64)
        await first.score("a")
        second = first.beside()
        second.inner.observed = Observed(model="m", weights_sha256="2" * 64)
        await second.score("a")
        assert second.sent == [["a"]]
        third = first.beside()
        third.inner.observed = Observed(model="m", weights_sha256="1" * 64)
        await third.score("a")
        assert third.sent == []

    run_virtual(run())


def test_a_server_that_was_lost_is_not_mixed_with_what_is_kept() -> None:
    """Until it was looked at it may be another: it scores all of a round or nothing, and nothing of that is kept."""

    async def run() -> None:
        stage = arranged()
        await stage.score("a", "bb")
        stage.inner.is_identified = False
        assert (await stage.score("a", "bb")).cost.cached == 2
        mixed = await stage.score("a", "ccc")
        assert mixed.cost.cached == 0
        await stage.score("ccc")
        assert stage.sent == [["a", "bb"], ["a", "ccc"], ["ccc"]]
        stage.inner.is_identified = True
        assert (await stage.score("a", "ccc")).cost.cached == 1

    run_virtual(run())


class _Exchanged(ScriptedStage):
    """A stage whose second call is lost after a while, and made again at a server that scores otherwise."""

    async def score(self, *args: Any, **fields: Any) -> Any:
        if len(self.calls) == 1:
            await asyncio.sleep(0.005)
            self.is_identified = False
            self.score_of = lambda query, text: 100.0 + len(text)
        return await ScriptedStage.score(self, *args, **fields)


def test_a_server_that_is_lost_in_a_round_scores_all_of_it() -> None:
    """It may have come back as another: what is kept of the one before does not stand beside its scores."""

    async def run() -> None:
        stage = arranged(_Exchanged(by_length))
        await stage.score("a" * 8, "bb")
        scored = await stage.score("a" * 8, "bb", "c")
        assert scored.scores == (108.0, 102.0, 101.0)
        assert scored.cost.cached == 0
        assert stage.sent == [["a" * 8, "bb"], ["c"], ["a" * 8, "bb"]]
        stage.inner.is_identified = True
        assert (await stage.score("c")).cost.cached == 0  # nothing of it was kept

    run_virtual(run())


def test_a_server_that_is_lost_in_a_round_hands_nothing_on() -> None:
    """Those who wait for it have what one server said, all of it."""

    async def run() -> None:
        stage = arranged(_Exchanged(by_length, delay_ms=10))
        await stage.score("a" * 8)
        leader = asyncio.create_task(stage.score("c"))
        await asyncio.sleep(0)
        assert (await stage.score("a" * 8, "c")).scores == (108.0, 101.0)
        assert (await leader).scores == (101.0,)

    run_virtual(run())


def test_nobody_waits_for_a_server_that_is_not_known() -> None:
    """Its rounds count for nobody else."""

    async def run() -> None:
        stage = arranged(ScriptedStage(by_length, delay_ms=10, is_identified=False))
        await asyncio.gather(stage.score("a"), stage.score("a"))
        assert stage.sent == [["a"], ["a"]]
        assert asyncio.get_running_loop().time() == pytest.approx(0.01)

    run_virtual(run())


def test_what_was_begun_at_a_server_that_was_lost_counts_for_nobody_else() -> None:
    """It was looked at since, and is what it was: who answered before that look is not known."""

    async def run() -> None:
        stage = arranged(ScriptedStage(by_length, delay_ms=10, is_identified=False))
        first = asyncio.create_task(stage.score("a"))
        await asyncio.sleep(0.005)
        stage.inner.is_identified = True
        await stage.score("a")
        assert asyncio.get_running_loop().time() == pytest.approx(0.015)
        await first
        assert stage.sent == [["a"], ["a"]]

    run_virtual(run())


def test_nothing_is_kept_of_what_was_begun_at_a_server_that_was_lost() -> None:
    """Though it has ended after it was looked at."""

    async def run() -> None:
        stage = arranged(ScriptedStage(by_length, delay_ms=10, is_identified=False))
        async with asyncio.TaskGroup() as group:
            group.create_task(stage.score("a"))
            await asyncio.sleep(0.005)
            stage.inner.is_identified = True
        assert (await stage.score("a")).cost.cached == 0

    run_virtual(run())


def test_what_was_scored_while_the_server_changed_is_not_kept() -> None:
    """A round that one server began and another may have ended is of neither."""

    async def run() -> None:
        stage = arranged(ScriptedStage(by_length, delay_ms=10))
        for change in (Observed(revision="two"), None):
            async with asyncio.TaskGroup() as group:
                group.create_task(stage.score("a"))
                await asyncio.sleep(0.005)
                stage.inner.observed = change
        assert stage.sent == [["a"], ["a"]]
        await stage.score("a")
        assert len(stage.sent) == 3

    run_virtual(run())
