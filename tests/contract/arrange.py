"""Arrange a stage of a release before a fake server: all but the transport, and no network."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import respx

from cascade.guard.deadline import Deadline
from cascade.policy.release import parse_release
from cascade.stages.base import Stage
from cascade.stages.build import build_stages
from cascade.stages.engine.workers import worker_pool
from cascade.testing.upstream import FakeServer
from cascade.text import Text
from cascade.types import StageName, StageScores

__all__ = ["HOSTED", "INFINITY", "LLAMACPP", "SGLANG", "TEI", "VLLM", "Contract", "by_length", "released"]

TEI = {"adapter": "tei", "url": "http://reranker.test", "model": "fake/reranker", "engine": "tei/1.9"}
VLLM = {"adapter": "vllm", "url": "http://reranker.test", "model": "fake/reranker", "engine": "vllm/0.32"}
INFINITY = {**TEI, "adapter": "infinity", "engine": "infinity/0.0.78"}
LLAMACPP = {**TEI, "adapter": "llamacpp", "engine": "llamacpp/b1"}
SGLANG = {**TEI, "adapter": "sglang", "engine": "sglang/0.5"}
HOSTED = {name: {**TEI, "adapter": name, "engine": name} for name in ("cohere", "jina", "voyage", "mixedbread", "nim")}


def by_length(query: str, text: str) -> float:
    """Score by length, a logit: the longer, the lower."""
    return 6.5 - len(text)


@dataclass(frozen=True)
class Contract:
    """A stage, and what left it."""

    stage: Stage
    route: respx.Route

    async def score(self, query: str, documents: list[str], instruction: str | None = None) -> StageScores:
        """Score strings with time enough."""
        return await self.stage.score(
            Text(query),
            [Text(text) for text in documents],
            deadline=Deadline.after_ms(20_000, asyncio.get_running_loop().time),
            call_id="call",
            instruction=None if instruction is None else Text(instruction),
        )

    @property
    def bodies(self) -> list[bytes]:
        """Return the body of each scoring call, byte for byte."""
        return [call.request.content for call in self.route.calls if call.request.method == "POST"]

    @property
    def paths(self) -> list[str]:
        """Return the path of every call, discovery among them, but not those that read the server's load."""
        return [call.request.url.path for call in self.route.calls if call.request.url.path != "/metrics"]


@asynccontextmanager
async def released(
    server: FakeServer, declared: Mapping[str, Any], environment: Mapping[str, str] | None = None, **fields: Any
) -> AsyncIterator[Contract]:
    """Give the started stage that a release declares, before a fake server."""
    release = parse_release(
        {
            "release": "contract",
            "stages": {"small": {**declared, **fields}},
            "depth": 50,
            "escalation": "none",
            "budgets": {"total_ms": 90, "small_ms": 30, "large_ms": 50, "reserve_ms": 7},
        }
    )
    router = respx.Router(assert_all_called=False)
    route = router.route(host="reranker.test").mock(side_effect=server)
    with worker_pool(1) as pool:
        stage = build_stages(
            release,
            clock=asyncio.get_running_loop().time,
            pool=pool,
            environment=environment or {},
            transport_for=lambda spec: httpx.MockTransport(router.async_handler),
        )[StageName.SMALL]
        await stage.start()
        try:
            yield Contract(stage, route)
        finally:
            await stage.aclose()
