"""What a round that failed tells, where it was more than one call."""

from __future__ import annotations

import asyncio

import pytest

from cascade.errors import StageTimeout
from cascade.testing.clock import run_virtual
from cascade.testing.stages import ScriptedStage
from tests.cache.arrange import arranged, by_length


def test_what_left_in_earlier_calls_of_a_failed_round_is_told() -> None:
    """One document was scored, the round it waited for failed, and so does sending that one's: two left."""

    async def run() -> None:
        stage = arranged(ScriptedStage(by_length, delay_ms=100.0))
        leader = asyncio.create_task(stage.score("a"))
        await asyncio.sleep(0.01)
        follower = asyncio.create_task(stage.score("a", "bb", "ccc"))
        await asyncio.sleep(0.05)
        leader.cancel()
        await asyncio.sleep(0.08)
        stage.inner.fails = StageTimeout("small", "deadline", elapsed_ms=1.0, budget_ms=1.0, sent=1)
        with pytest.raises(StageTimeout) as raised:
            await follower
        assert stage.sent == [["a"], ["bb", "ccc"], ["a"]]
        assert raised.value.sent == 3

    run_virtual(run())
