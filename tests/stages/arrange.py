"""Arrange a stage before a fake server."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

import httpx

from cascade.guard.deadline import Deadline
from cascade.guard.events import GuardEvents
from cascade.policy.release import ApiStage, HostedStage, HttpStage, TeiStage, VllmStage
from cascade.stages.build import wire_of
from cascade.stages.http import HttpReranker
from cascade.stages.upstream import Upstream
from cascade.telemetry.work import NO_WORK_EVENTS, WorkEvents
from cascade.testing.upstream import FakeServer
from cascade.text import Text
from cascade.types import StageScores

__all__ = ["URL", "api_spec", "running", "score", "stage_before", "tei_spec", "vllm_spec"]

URL = "http://reranker.test"


def tei_spec(**fields: Any) -> TeiStage:
    """Declare a TEI stage; ``fields`` override."""
    return TeiStage.model_validate({"adapter": "tei", "url": URL, "model": "m", "engine": "tei/1.9", **fields})


def vllm_spec(**fields: Any) -> VllmStage:
    """Declare a vLLM stage; ``fields`` override."""
    declared = {"adapter": "vllm", "url": URL, "model": "fake/reranker", "engine": "vllm/0.32"}
    return VllmStage.model_validate({**declared, **fields})


def api_spec(adapter: str, **fields: Any) -> ApiStage:
    """Declare a stage of an adapter that differs in names only; ``fields`` override."""
    declared = {"adapter": adapter, "url": URL, "model": "fake/reranker", "engine": adapter}
    return ApiStage.model_validate({**declared, **fields})


def stage_before(
    transport: httpx.AsyncBaseTransport,
    spec: HttpStage,
    count_fault: Callable[[BaseException], None] = lambda error: None,
    *,
    budget_ms: float = math.inf,
    events: GuardEvents | None = None,
    work: WorkEvents = NO_WORK_EVENTS,
) -> HttpReranker:
    """Return a stage, not started, on the clock of the running loop; its guards draw the middle of what they may."""
    clock = asyncio.get_running_loop().time
    wire = wire_of(cast("TeiStage | VllmStage | ApiStage | HostedStage", spec))
    upstream = Upstream(spec.url, transport, connect_ms=spec.connect_ms)
    return HttpReranker(
        "large",
        spec,
        wire,
        upstream,
        clock,
        count_fault,
        budget_ms=budget_ms,
        draw=lambda: 0.5,
        events=events or GuardEvents(),
        work=work,
    )


@asynccontextmanager
async def running(
    server: FakeServer, spec: HttpStage, *, budget_ms: float = math.inf, events: GuardEvents | None = None
) -> AsyncIterator[HttpReranker]:
    """Give a started stage before a fake server."""
    stage = stage_before(httpx.MockTransport(server), spec, budget_ms=budget_ms, events=events)
    await stage.start()
    try:
        yield stage
    finally:
        await stage.aclose()


async def score(
    stage: HttpReranker, query: str, documents: Sequence[str], *, within_ms: float = 1000.0, call_id: str = "call"
) -> StageScores:
    """Score strings within a budget that starts now."""
    deadline = Deadline.after_ms(within_ms, asyncio.get_running_loop().time)
    return await stage.score(Text(query), [Text(text) for text in documents], deadline=deadline, call_id=call_id)
