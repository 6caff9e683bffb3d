"""Arrange a listwise stage before a fake chat server, in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx

from cascade.guard.deadline import Deadline
from cascade.policy.release import ChatStage
from cascade.stages.build import build_stage
from cascade.stages.engine.workers import worker_pool
from cascade.stages.listwise import ListReranker
from cascade.testing.chat import FakeChat
from cascade.text import Text
from cascade.types import StageName, StageScores

__all__ = ["CHAT", "GENEROUS", "by_length", "order", "ordering"]

CHAT = {"adapter": "chat", "url": "http://chat.test", "model": "fake/chat", "engine": "vllm/0.32"}
GENEROUS = {"min_calls": 100, "consecutive": 100}


def by_length(query: str, text: str) -> float:
    """Score by length: the longer, the lower."""
    return -float(len(text))


@asynccontextmanager
async def ordering(
    server: FakeChat, environment: Mapping[str, str] | None = None, **fields: Any
) -> AsyncIterator[ListReranker]:
    """Give a started listwise stage before a fake server."""
    spec = ChatStage.model_validate({**CHAT, **fields})
    with worker_pool(1) as pool:
        stage = build_stage(
            StageName.LARGE,
            spec,
            budget_ms=1000,
            clock=asyncio.get_running_loop().time,
            pool=pool,
            environment=environment or {},
            transport_for=lambda spec: httpx.MockTransport(server),
            draw=lambda: 0.5,
        )
        assert isinstance(stage, ListReranker)
        await stage.start()
        try:
            yield stage
        finally:
            await stage.aclose()


async def order(
    stage: ListReranker, query: str, documents: list[str], *, instruction: str | None = None, within_ms: float = 20_000
) -> StageScores:
    """Have strings ordered."""
    return await stage.score(
        Text(query),
        [Text(text) for text in documents],
        deadline=Deadline.after_ms(within_ms, asyncio.get_running_loop().time),
        call_id="call",
        instruction=None if instruction is None else Text(instruction),
    )
