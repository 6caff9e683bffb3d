"""A sidecar as a process, before one reranker server that may hang."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx

from cascade.testing.upstream import FakeTei
from tests.e2e.processes import Process, listening, serving, write_yaml

__all__ = ["HangingTei", "Running", "body_of", "started"]

_ONE_STAGE: Final[dict[str, Any]] = {
    "release": "one-1",
    "stages": {"small": {"adapter": "tei", "url": "${CASCADE_UPSTREAM_URL}", "model": "m", "engine": "tei/1.9"}},
    "depth": 50,
    "escalation": "none",
    "budgets": {"total_ms": 5000, "small_ms": 20_000, "large_ms": 100, "reserve_ms": 20},
}


@dataclass
class HangingTei(FakeTei):
    """Answer as ever, but never a query that says so; ``holding`` counts those."""

    holding: int = 0

    async def __call__(self, request: httpx.Request) -> httpx.Response:
        if b"hang" in await request.aread():
            self.holding += 1
            await asyncio.sleep(600)
        return await super().__call__(request)


@dataclass(frozen=True, slots=True)
class Running:
    """A sidecar and its upstream."""

    process: Process
    upstream: HangingTei

    def client(self) -> httpx.Client:
        """Return a client of the public listener."""
        return httpx.Client(base_url=self.process.public, trust_env=False, timeout=30)


def started(stack: ExitStack, folder: Path, *arguments: str, **settings: Any) -> Running:
    """Serve a release of one stage, with settings, until the stack is closed."""
    upstream = HangingTei()
    url = stack.enter_context(listening(upstream))
    release = write_yaml(folder / "release.yaml", _ONE_STAGE)
    config = write_yaml(folder / "settings.yaml", settings)
    process = stack.enter_context(
        serving(folder, "--release", str(release), "--config", str(config), *arguments, CASCADE_UPSTREAM_URL=url)
    )
    return Running(process, upstream)


def body_of(query: str, texts: list[str]) -> dict[str, Any]:
    """Return the body of a request to TEI."""
    return {"query": query, "texts": texts}
