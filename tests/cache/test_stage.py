"""A stage whose scores are kept."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from cascade.cache.memory import MemoryStore
from cascade.cache.score_cache import Looked
from cascade.cache.store import Found
from cascade.errors import (
    StageBreakerOpen,
    StageError,
    StageInvalidAnswer,
    StageRefused,
    StageUnreachable,
)
from cascade.guard.deadline import Deadline
from cascade.stages.base import Observed
from cascade.stages.verdicts import EVERY_REFUSED
from cascade.testing.clock import run_virtual
from cascade.testing.stages import ScriptedStage
from cascade.types import Arm, Exclusion, StageCost
from tests.cache.arrange import Cached, RefusesAlone, arranged, by_length, cache_of


def test_what_was_scored_is_not_sent_again() -> None:
    """A round is answered from both, in the order given, and says what each part was."""

    async def run() -> None:
        stage = arranged()
        first = await stage.score("a", "bb")
        assert first.scores == (1.01, 2.01)
        assert first.cost == StageCost(1, 3, tokens_estimated=True, truncated=0)
        second = await stage.score("ccc", "bb", "dddd", "a")
        assert second.scores == (3.01, 2.01, 4.01, 1.01)
        assert stage.sent == [["a", "bb"], ["ccc", "dddd"]]
        assert second.cost == StageCost(1, 7, tokens_estimated=True, truncated=0, cached=2)
        assert stage.looked == [Looked(0, 0, 2, 0), Looked(2, 0, 2, 0)]

    run_virtual(run())


def test_where_all_is_kept_nothing_leaves_and_nothing_is_spent() -> None:
    """An open breaker, too little time for a round and an unusable server do not matter then."""

    async def run() -> None:
        stage = arranged()
        await stage.score("a", "bb")
        stage.inner.fails, stage.inner.unusable = StageBreakerOpen, "unknown_model"
        scored = await stage.score("bb", "a", within_ms=0.001)
        assert scored.scores == (2.01, 1.01)
        assert scored.cost == StageCost(0, 0, tokens_estimated=False, truncated=0, cached=2)
        assert len(stage.sent) == 1

    run_virtual(run())


@pytest.mark.parametrize("fault", [StageBreakerOpen, StageUnreachable, StageInvalidAnswer, StageRefused])
def test_where_a_part_is_missing_and_the_stage_fails_the_round_fails(fault: type[StageError]) -> None:
    """Part of a round is no round: it fails as it would without a cache, and nothing of it is kept."""

    async def run() -> None:
        stage = arranged()
        await stage.score("a")
        stage.inner.fails = fault
        with pytest.raises(fault):
            await stage.score("a", "bb")
        stage.inner.fails = None
        await stage.score("bb")
        assert stage.sent == [["a"], ["bb"], ["bb"]]

    run_virtual(run())


def test_blank_documents_are_left_out_as_by_the_stage() -> None:
    """They are neither sent nor looked up; a round of nothing else is the stage's affair."""

    async def run() -> None:
        stage = arranged()
        for _ in range(2):
            scored = await stage.score("", "a", " \t")
            assert scored.scores == (None, 1.01, None)
            assert scored.excluded == {0: Exclusion.BLANK, 2: Exclusion.BLANK}
        assert stage.sent == [["a"]]
        nothing = await stage.score("", " ")
        assert nothing.excluded == {0: Exclusion.BLANK, 1: Exclusion.BLANK}
        assert stage.sent[1:] == [["", " "]]

    run_virtual(run())


def test_a_document_that_stands_twice_is_sent_once() -> None:
    """Both places have its score, and one of them cost nothing."""

    async def run() -> None:
        stage = arranged()
        scored = await stage.score("a", "bb", "a")
        assert scored.scores == (1.01, 2.01, 1.01)
        assert stage.sent == [["a", "bb"]]
        assert scored.cost.cached == 1
        assert stage.looked == [Looked(0, 1, 2, 0)]

    run_virtual(run())


def test_a_refused_document_that_stands_twice_was_not_answered_from_the_cache() -> None:
    """Only what has a score counts as cached, so that what the stage scored is never less than nothing."""

    async def run() -> None:
        stage = arranged(ScriptedStage(by_length, refuses=lambda text: text == "bb"))
        scored = await stage.score("bb", "bb", "bb", "a")
        assert scored.scores == (None, None, None, 1.01)
        assert stage.sent == [["bb", "a"]]
        assert scored.cost.cached == 0

    run_virtual(run())


def test_what_was_refused_or_shortened_is_not_kept() -> None:
    """A refused document is tried again, and a score of a part of one is not kept as that of the whole."""

    async def run() -> None:
        stage = arranged(ScriptedStage(by_length, refuses=lambda t: t == "bb", shortens=lambda t: t == "ccc"))
        for _ in range(2):
            scored = await stage.score("a", "bb", "ccc")
            assert scored.scores == (1.01, None, 3.01)
            assert scored.excluded == {1: Exclusion.REFUSED}
            assert scored.shortened == {2}
        assert stage.sent == [["a", "bb", "ccc"], ["bb", "ccc"]]

    run_virtual(run())


def test_a_refused_document_among_kept_ones_does_not_fail_the_round() -> None:
    """The round of what is missing has nothing else in it then; the whole round has."""

    async def run() -> None:
        stage = arranged(RefusesAlone(by_length, refuses=lambda text: text == "bb"))
        for cached in (0, 1):
            scored = await stage.score("a", "bb")
            assert scored.scores == (1.01, None)
            assert scored.excluded == {1: Exclusion.REFUSED}
            assert scored.cost.cached == cached
        with pytest.raises(StageRefused, match=EVERY_REFUSED) as raised:
            await stage.score("bb")
        assert raised.value.sent == 1

    run_virtual(run())


def test_the_shadow_reads_and_keeps_nothing() -> None:
    """What is scored in the shadow of traffic spends nothing that traffic scored already, and pushes out nothing."""

    async def run() -> None:
        stage = arranged()
        shadow = stage.beside(arm=Arm.SHADOW)
        await stage.score("a")
        assert (await shadow.score("a", "bb")).cost.cached == 1
        assert (await shadow.score("a", "bb")).cost.cached == 1
        assert shadow.sent == [["bb"], ["bb"]]
        await stage.score("bb")
        assert stage.sent == [["a"], ["bb"]]
        canary = stage.beside(arm=Arm.CANARY)
        assert (await canary.score("a", "bb")).cost.cached == 2

    run_virtual(run())


def test_a_shadow_made_of_a_cached_stage_asks_another_way() -> None:
    """What stands in for the stage inside is asked for what is missing."""

    async def run() -> None:
        stage = arranged()
        await stage.score("a")
        way = ScriptedStage(by_length, fingerprint=stage.inner.fingerprint)
        shadow = Cached(way, stage.cache, stage.stage.aside(way))
        assert (await shadow.score("a", "bb")).cost.cached == 1
        assert way.calls == [["bb"]]

    run_virtual(run())


class _Broken(MemoryStore):
    """A store that can tell of nothing."""

    async def get(self, keys: Any, deadline: Deadline, *, use: bool = True) -> Found:
        return Found({}, faults=len(keys))


def test_a_fault_of_the_store_is_a_miss() -> None:
    """It is told apart from one, and costs a call."""

    async def run() -> None:
        loop = asyncio.get_running_loop()
        stage = arranged(cache=cache_of(_Broken(1000, 1.0, loop.time)))
        await stage.score("a", "bb", "a")
        await stage.score("a")
        assert stage.sent == [["a", "bb"], ["a"]]
        assert stage.looked == [Looked(0, 1, 0, 2), Looked(0, 0, 0, 1)]

    run_virtual(run())


def test_the_stage_says_of_itself_what_the_one_inside_says() -> None:
    """Nothing that reads a stage can tell that its scores are kept."""

    async def run() -> None:
        inner = ScriptedStage(by_length, observed=Observed(model="m"), unusable="why", takes_instruction=True)
        stage = arranged(inner).stage
        for name in ("fingerprint", "space", "observed", "unusable", "congestion", "guarded", "takes_instruction"):
            assert getattr(stage, name) == getattr(inner, name)
        assert await stage.look_again()
        assert inner.looks == 1
        inner.back.set()
        await stage.returned()
        await stage.start()
        await stage.aclose()

    run_virtual(run())
