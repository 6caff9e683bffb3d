"""A sidecar whose requests are traced, and what its spans tell."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import httpx

from cascade.policy.release import TeiStage
from cascade.stages.base import Stage
from cascade.stages.http import HttpReranker
from cascade.stages.tei import TeiWire
from cascade.stages.upstream import Upstream
from cascade.telemetry.span_schema import admitted
from cascade.telemetry.spans import Span
from cascade.testing.stages import ScriptedStage
from cascade.testing.upstream import FakeTei, overlap
from cascade.types import StageName
from tests.server.sidecar import Sidecar, sidecar
from tests.telemetry.traces import Traces

__all__ = ["NOT_SAMPLED", "PARENT", "TEXTS", "TRACE", "before", "tei_stage", "told_by"]

TRACE: Final = "0af7651916cd43dd8448eb211c80319c"
PARENT: Final = f"00-{TRACE}-b7ad6b7169203331-01"
NOT_SAMPLED: Final = f"00-{TRACE}-b7ad6b7169203331-00"
TEXTS: Final = ["a kingfisher", "a heron", "the kingfisher dives", "bread"]


def tei_stage(server: FakeTei, name: str = "large") -> HttpReranker:
    """Return a stage before a server, with a key that nobody is to see."""
    declared = {"adapter": "tei", "url": "http://tei.test:8080/base", "model": f"test/{name}", "engine": "tei/1.9"}
    spec = TeiStage.model_validate(declared)
    upstream = Upstream(spec.url, httpx.MockTransport(_below(server)), "kingfisher-token", connect_ms=spec.connect_ms)
    clock = asyncio.get_running_loop().time
    return HttpReranker(name, spec, TeiWire(raw_scores=True), upstream, clock, draw=lambda: 0.5)


def _below(server: FakeTei) -> Any:
    """Serve under a path, as the release's address says."""

    async def answer(request: httpx.Request) -> httpx.Response:
        path = request.url.path.removeprefix("/base")
        moved = httpx.Request(
            request.method, f"http://tei.test{path}", headers=request.headers, content=request.content
        )
        return await server(moved)

    return answer


def before(traces: Traces, large: FakeTei, **fields: Any) -> Sidecar:
    """Return a sidecar with a scripted small stage, and a large one before a server."""
    stages: dict[StageName, Stage] = {StageName.SMALL: ScriptedStage(overlap), StageName.LARGE: tei_stage(large)}
    return sidecar(stages=stages, tracer=traces.tracer, **fields)


def told_by(span: Span) -> dict[str, Any]:
    """Return what leaves of a span; nothing is set that does not."""
    told = admitted(span.name, span.attributes)
    assert told == {str(name): value for name, value in span.attributes.items()}
    return told
