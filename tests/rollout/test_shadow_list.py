"""A listwise stage scored beside answers: the list goes whole, or not at all."""

from __future__ import annotations

import asyncio

import pytest

from cascade.errors import StageOverloaded
from cascade.guard.deadline import Deadline
from cascade.rollout.shadow.aside_stage import AsideStage
from cascade.testing.chat import FakeChat
from cascade.testing.clock import run_virtual
from cascade.text import Text
from cascade.types import StageScores
from tests.contract.chat import order, ordering


async def _beside(stage: AsideStage, texts: list[str], within_ms: float = 1000.0) -> StageScores:
    deadline = Deadline.after_ms(within_ms, asyncio.get_running_loop().time)
    return await stage.score(Text("q"), [Text(text) for text in texts], deadline=deadline, call_id="beside")


def test_a_list_is_never_sent_in_parts() -> None:
    """Forty documents where there is room for two lists: one call, one order."""

    async def play() -> None:
        server = FakeChat(score_of=lambda query, text: float(text), delay_ms=5)
        async with ordering(server, max_in_flight_texts=4) as stage:
            aside = AsideStage(stage, asyncio.get_running_loop().time, lambda: False)
            scored = await _beside(aside, [str(number) for number in range(40)])
        assert len(server.posts) == 1
        assert server.posts[0].headers["x-request-id"].startswith("beside-")
        assert "part" not in server.posts[0].headers["x-request-id"]
        assert list(scored.scores) == pytest.approx([(number + 1) / 40 for number in range(40)])

    run_virtual(play())


def test_a_list_waits_until_half_of_the_room_is_free() -> None:
    """With one of two lists under way for an answer there is none left over; then it goes."""

    async def play() -> None:
        server = FakeChat(delay_ms=50)
        async with ordering(server, max_in_flight_texts=2) as stage:
            aside = AsideStage(stage, asyncio.get_running_loop().time, lambda: False)
            answers = asyncio.create_task(order(stage, "q", ["a", "b"]))
            await asyncio.sleep(0.01)
            with pytest.raises(StageOverloaded, match="waiting_for_room"):
                await _beside(aside, ["a", "b"], within_ms=20)
            assert len(server.posts) == 1
            await answers
            await _beside(aside, ["a", "b"])
            assert len(server.posts) == 2

    run_virtual(play())
