"""Score rounds with the stages that serve, built from a release, over real connections."""

import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from cascade.guard.deadline import Deadline
from cascade.policy.release import Release, parse_release
from cascade.stages.base import Stage
from cascade.stages.build import build_stages
from cascade.stages.engine.workers import worker_pool
from cascade.text import Text
from cascade.types import StageName, StageScores

from .servers import Server

__all__ = ["one_stage", "open_stage", "score"]

AMPLE_MS = 120_000.0


def one_stage(server: Server, adapter: str, **spec: Any) -> Release:
    """Return a release whose only stage is the server; ``spec`` overrides what the stage declares."""
    stage = {"adapter": adapter, "url": server.base_url, "model": server.model, "engine": server.version, **spec}
    return parse_release(
        {
            "release": "one-stage",
            "stages": {"small": stage},
            "depth": 200,
            "escalation": "none",
            "budgets": {"total_ms": AMPLE_MS, "small_ms": AMPLE_MS, "large_ms": AMPLE_MS, "reserve_ms": 10.0},
        }
    )


@asynccontextmanager
async def open_stage(
    server: Server, adapter: str, *, environment: Mapping[str, str] | None = None, start: bool = True, **spec: Any
) -> AsyncIterator[Stage]:
    """Build the stage of ``one_stage``, by default start it, and close it at the end.

    Tokens in ``environment`` are what the stage's ``auth`` refers to.
    """
    release = one_stage(server, adapter, **spec)
    with worker_pool(1) as pool:
        stages = build_stages(release, clock=time.monotonic, pool=pool, environment=environment or {})
        stage = stages[StageName.SMALL]
        try:
            if start:
                await stage.start()
            yield stage
        finally:
            await stage.aclose()


async def score(stage: Stage, query: str, texts: Sequence[str], *, deadline_ms: float = AMPLE_MS) -> StageScores:
    """Score the texts within ``deadline_ms``."""
    deadline = Deadline.after_ms(deadline_ms, time.monotonic)
    return await stage.score(Text(query), [Text(text) for text in texts], deadline=deadline, call_id="engines")
