"""The real application over scripted stages, in memory."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final, cast

import httpx
import orjson
from starlette.applications import Starlette

from cascade.cache.score_cache import ScoreCache
from cascade.calibration.calibrated import Calibration
from cascade.guard.admission import Admission
from cascade.guard.deadline import Clock
from cascade.guard.seat import Bounds
from cascade.guard.under_way import UnderWay
from cascade.policy.release import Release, StageSpec, parse_release
from cascade.rollout.artefacts import Artefacts
from cascade.rollout.bundle import Bundle
from cascade.rollout.load import LoadedRelease
from cascade.rollout.source import Source, SourceKind
from cascade.server.active import ActiveRelease, Shared
from cascade.server.admin import admin_app
from cascade.server.app import public_app
from cascade.server.queue_waits import QueueWaits
from cascade.server.recording import Records
from cascade.server.service import Service
from cascade.server.stage_pool import StagePool
from cascade.server.start_choices import StartChoices
from cascade.server.tenant_quotas import TenantQuotas
from cascade.server.traffic import Traffic
from cascade.stages.base import Stage
from cascade.telemetry.faults import Faults
from cascade.telemetry.metrics import Metrics
from cascade.telemetry.records import Recorder
from cascade.testing.stages import ScriptedStage
from cascade.testing.upstream import overlap
from cascade.types import StageName

__all__ = ["BODIES", "LEVELS", "ROOMY", "ROUTES", "Sidecar", "bundle_of", "dumps", "release_of", "sidecar"]

ROUTES: Final = {
    "native": ("/v1/cascade/rerank",),
    "tei": ("/rerank", "/"),
    "vllm": ("/v1/rerank", "/rerank", "/v2/rerank", "/v1/reranking"),
    "vllm-score": ("/v1/score", "/score"),
}
"""The routes of each dialect."""


ROOMY: Final = Bounds(most=1000, most_waiting=1000, most_long=1000, long_cost=1e9)
"""Room for all that a test sends."""
LEVELS: Final = (
    {"name": "normal"},
    {"name": "degraded-1", "escalation": "none"},
    {"name": "degraded-2", "depth": 2, "escalation": "none"},
    {"name": "degraded-3", "stages": "none"},
)
"""Load levels as a release has them."""


def _native(query: str, texts: list[str]) -> dict[str, Any]:
    return {"query": query, "candidates": [{"text": text} for text in texts]}


BODIES: Final[Mapping[str, Callable[[str, list[str]], dict[str, Any]]]] = {
    "native": _native,
    "tei": lambda query, texts: {"query": query, "texts": texts},
    "vllm": lambda query, texts: {"query": query, "documents": texts},
    "vllm-score": lambda query, texts: {"text_1": query, "text_2": texts},
}
"""How each dialect writes a query and its documents."""


def dumps(value: Any) -> bytes:
    """Return JSON as a client would send it."""
    return orjson.dumps(value)


def release_of(**fields: Any) -> Release:
    """Return a release of two HTTP stages; ``fields`` replace its own."""
    stage = {"adapter": "tei", "url": "http://upstream.test", "engine": "tei/1.9", "dtype": "float16"}
    written: dict[str, Any] = {
        "release": "test-1",
        "stages": {
            "small": {**stage, "model": "test/small", "max_length": 512},
            "large": {**stage, "model": "test/large", "revision": "abc123", "max_length": 1024},
        },
        "depth": 50,
        "escalation": {"kind": "static", "top_m": 20},
        "budgets": {"total_ms": 1000.0, "small_ms": 400.0, "large_ms": 500.0, "reserve_ms": 20.0},
    }
    return parse_release({**written, **fields})


def bundle_of(release: Release, calibration: Calibration | None = None, digest: str = "sha256:release") -> Bundle:
    """Return a release as if it had been loaded from a file that is not there."""
    nowhere = Path("nowhere")
    source = Source(nowhere, SourceKind.FILE, b"", Artefacts(named=nowhere))
    return Bundle(LoadedRelease(release, digest, "sha256:policy", {}), source, calibration)


def _client(app: Starlette) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    return httpx.AsyncClient(transport=transport, base_url="http://sidecar.test")


@dataclass
class Sidecar:
    """A service with its stages, and clients of both listeners."""

    service: Service
    small: ScriptedStage
    large: ScriptedStage

    @cached_property
    def public(self) -> httpx.AsyncClient:
        """Return a client of the public listener, which is made when it is first asked: that takes a while."""
        return _client(public_app(self.service))

    @cached_property
    def admin(self) -> httpx.AsyncClient:
        """Return a client of the admin listener."""
        return _client(admin_app(self.service))

    async def post(self, path: str, body: Any, headers: Mapping[str, str] | None = None) -> httpx.Response:
        """Post JSON, or bytes as they are."""
        content = body if isinstance(body, bytes) else dumps(body)
        return await self.public.post(path, content=content, headers=dict(headers or {}))

    async def metrics(self) -> dict[str, float]:
        """Return every sample of the exposition by its name and labels."""
        lines = (await self.admin.get("/metrics")).text.splitlines()
        return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines if line[0] != "#")}


@dataclass(frozen=True, slots=True)
class _Records:
    """Records that are kept where a test looks."""

    kept: Recorder

    def recorder(self, loaded: LoadedRelease, stages: Mapping[StageName, Stage]) -> Recorder:
        return self.kept


def sidecar(
    small: ScriptedStage | None = None,
    large: ScriptedStage | None = None,
    *,
    release: Release | None = None,
    bundle: Bundle | None = None,
    build: Callable[[StageName, StageSpec], Stage] | None = None,
    stages: Mapping[StageName, Stage] | None = None,
    calibration: Calibration | None = None,
    level: str | None = None,
    clock: Clock | None = None,
    bounds: Bounds = ROOMY,
    cache: ScoreCache | None = None,
    metrics: Metrics | None = None,
    recorder: Recorder | None = None,
    **settings: Any,
) -> Sidecar:
    """Make a sidecar whose stages score by shared words, at a load level, on the clock of the running loop unless another is given.

    ``build`` makes the stages of a release in place of the two. Scores are kept where a ``cache`` is given. ``recorder`` is told of what every
    release decides. ``settings`` are further fields of the service.
    """
    small = small or ScriptedStage(overlap)
    large = large or ScriptedStage(overlap)
    clock = clock or asyncio.get_running_loop().time
    there = stages if stages is not None else {StageName.SMALL: small, StageName.LARGE: large}
    metrics = metrics or Metrics()
    faults = Faults(metrics, clock)
    numbers = itertools.count(1)
    waits = QueueWaits(metrics.admission.settled)
    admission = Admission(bounds, clock, settled=waits.settled)
    pool = StagePool(lambda name, spec, budget_ms: build(name, spec) if build is not None else there[name])
    shared = Shared(
        pool=pool,
        metrics=metrics,
        faults=faults,
        clock=clock,
        under_way=UnderWay(),
        hash_query=lambda query: "0" * 16,
        new_id=lambda: f"decision-{next(numbers)}",
        queue_wait_ms=lambda: admission.oldest_wait_s() * 1000,
        cache=cache,
        records=None if recorder is None else cast("Records", _Records(recorder)),
    )
    bundle = bundle or bundle_of(release or release_of(), calibration)
    traffic = Traffic(
        ActiveRelease(bundle, shared, level=level),
        metrics=metrics,
        faults=faults,
        waits=waits,
        quotas=TenantQuotas(admission, metrics.admission, clock),
        pinned=level,
    )
    service = Service(
        traffic=traffic,
        open_release=lambda bundle: ActiveRelease(bundle, shared),
        pool=pool,
        metrics=metrics,
        faults=faults,
        clock=clock,
        admission=admission,
        under_way=shared.under_way,
        cache=cache,
        choices=StartChoices.of(bundle),
        **{"max_body_bytes": 8_000_000, "started": True, "ready": True} | settings,
    )
    return Sidecar(service, small, large)
