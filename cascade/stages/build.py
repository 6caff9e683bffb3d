"""Make the stages of a release."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import assert_never

import httpx

from cascade.guard.deadline import Clock
from cascade.guard.events import GuardEvents
from cascade.policy.release import (
    ApiStage,
    EmbeddingStage,
    HostedStage,
    HttpStage,
    OnnxStage,
    Release,
    StageSpec,
    TeiStage,
    VllmStage,
)
from cascade.stages.base import Stage
from cascade.stages.embedding import EmbeddingReranker
from cascade.stages.http import HttpReranker
from cascade.stages.onnx import OnnxReranker
from cascade.stages.rerank_api import SHAPES, ApiWire
from cascade.stages.serializers import serializer
from cascade.stages.tei import TeiWire
from cascade.stages.upstream import Upstream, build_transport, read_token
from cascade.stages.vllm import VllmWire
from cascade.stages.wire import Wire
from cascade.types import ScoreSpace, StageName

__all__ = ["build_stages", "wire_of"]


def build_stages(
    release: Release,
    *,
    clock: Clock,
    pool: ThreadPoolExecutor,
    environment: Mapping[str, str],
    count_fault: Callable[[BaseException], None] = lambda error: None,
    transport_for: Callable[[HttpStage], httpx.AsyncBaseTransport] = build_transport,
    events_of: Callable[[StageName], GuardEvents] = lambda name: GuardEvents(),
    draw: Callable[[], float] = random.random,
) -> dict[StageName, Stage]:
    """Return the stages that a release names, not yet started. Raises ConfigError.

    ``count_fault`` is told of what goes wrong in a stage's background task, which goes on; ``transport_for``
    gives what sends the requests of a stage behind HTTP. ``events_of`` gives what is told of a stage's guards, and
    ``draw`` numbers in [0, 1) for their pauses.
    """
    budgets = release.budgets
    most_ms = budgets.total_ms - budgets.reserve_ms  # the deadline ends a stage of a larger budget sooner
    budget_ms = {StageName.SMALL: min(budgets.small_ms, most_ms), StageName.LARGE: min(budgets.large_ms, most_ms)}

    def build(name: StageName, spec: StageSpec) -> Stage:
        match spec:
            case OnnxStage():
                return OnnxReranker(name, spec, pool, clock)
            case EmbeddingStage():
                return EmbeddingReranker(name, spec, pool, clock)
            case TeiStage() | VllmStage() | ApiStage() | HostedStage():
                token = read_token(spec.auth, environment)
                return HttpReranker(
                    name,
                    spec,
                    wire_of(spec),
                    Upstream(spec.url, transport_for(spec), token, connect_ms=spec.connect_ms),
                    clock,
                    count_fault,
                    budget_ms=budget_ms[name],
                    draw=draw,
                    events=events_of(name),
                )
            case _:
                assert_never(spec)

    specs = {StageName.SMALL: release.stages.small, StageName.LARGE: release.stages.large}
    return {name: build(name, spec) for name, spec in specs.items() if spec is not None}


def wire_of(spec: TeiStage | VllmStage | ApiStage | HostedStage) -> Wire:
    """Return the wire format of a stage."""
    raw = spec.score_space is ScoreSpace.LOGIT
    match spec:
        case TeiStage():
            return TeiWire(raw_scores=raw, truncate=not serializer(spec.serializer).owns_template)
        case VllmStage():
            return VllmWire(spec.model, raw_scores=raw)
        case ApiStage() | HostedStage():
            return ApiWire(SHAPES[spec.adapter], spec.model, raw_scores=raw)
        case _:
            assert_never(spec)
