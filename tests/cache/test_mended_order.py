"""An order that was mended is answered once: kept, it would come back with nothing that tells of it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import Any

from cascade.testing.clock import run_virtual
from cascade.testing.stages import ScriptedStage
from cascade.types import ScoreSpace, StageScores
from tests.cache.arrange import arranged, by_length


@dataclass(slots=True)
class Mending(ScriptedStage):
    """A listwise stage whose first orders, ``mended`` of them, had to be mended."""

    mended: int = 0
    is_listwise: bool = True
    space: ScoreSpace = ScoreSpace.RANK

    async def score(self, *args: Any, **fields: Any) -> StageScores:
        scored = await ScriptedStage.score(self, *args, **fields)
        if not self.mended:
            return scored
        self.mended -= 1
        return replace(scored, cost=replace(scored.cost, repaired=1))


def test_a_mended_order_is_neither_kept_nor_handed_on() -> None:
    """The next request asks again; an order that was whole is kept."""

    async def run() -> None:
        stage = arranged(Mending(by_length, mended=1))
        first = await stage.score("a", "bb")
        second = await stage.score("a", "bb")
        third = await stage.score("a", "bb")
        assert [scored.cost.repaired for scored in (first, second, third)] == [1, 0, 0]
        assert [scored.cost.cached for scored in (first, second, third)] == [0, 0, 2]
        assert stage.sent == [["a", "bb"]] * 2

    run_virtual(run())


def test_who_waits_for_an_order_that_had_to_be_mended_asks_for_its_own() -> None:
    """Two requests for one list at one time: the second is not given what it could not be told of."""

    async def run() -> None:
        stage = arranged(Mending(by_length, mended=2, delay_ms=10.0))
        both = await asyncio.gather(stage.score("a", "bb"), stage.score("a", "bb", call_id="other"))
        assert [scored.cost.repaired for scored in both] == [1, 1]
        assert len(stage.sent) == 2

    run_virtual(run())


def test_the_same_list_of_two_requests_is_ordered_once() -> None:
    """A whole order is shared by who asks for the very same list; a list of other order is another."""

    async def run() -> None:
        stage = arranged(Mending(by_length, delay_ms=10.0))
        await asyncio.gather(stage.score("a", "bb"), stage.score("a", "bb", call_id="other"), stage.score("bb", "a"))
        assert sorted(stage.sent) == [["a", "bb"], ["bb", "a"]]

    run_virtual(run())
