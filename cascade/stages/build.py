"""Make the stages of a release."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Final, assert_never

import httpx

from cascade.errors import ConfigError
from cascade.guard.deadline import Clock
from cascade.guard.events import GuardEvents
from cascade.policy.release import (
    ApiStage,
    ChatStage,
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
from cascade.stages.chat import ChatWire, prose_bytes
from cascade.stages.embedding import EmbeddingReranker
from cascade.stages.engine.workers import Workers
from cascade.stages.http import HttpReranker
from cascade.stages.listwise import ListReranker
from cascade.stages.onnx import OnnxReranker
from cascade.stages.rerank_api import SHAPES, ApiWire
from cascade.stages.serializers import serializer
from cascade.stages.tei import TeiWire
from cascade.stages.upstream import Upstream, build_transport, read_token
from cascade.stages.vllm import VllmWire
from cascade.stages.wire import Wire
from cascade.telemetry.work import NO_WORK_EVENTS, WorkEvents
from cascade.types import ScoreSpace, StageName

__all__ = ["build_stage", "build_stages", "round_budget_ms", "specs_of", "wire_of"]

_NO_EVENTS: Final = GuardEvents()


def build_stages(
    release: Release,
    *,
    clock: Clock,
    pool: Workers,
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
    return {
        name: build_stage(
            name,
            spec,
            budget_ms=round_budget_ms(release, name),
            clock=clock,
            pool=pool,
            environment=environment,
            count_fault=count_fault,
            transport_for=transport_for,
            events=events_of(name),
            draw=draw,
        )
        for name, spec in specs_of(release).items()
    }


def specs_of(release: Release) -> dict[StageName, StageSpec]:
    """Return the stages that a release names."""
    specs = {StageName.SMALL: release.stages.small, StageName.LARGE: release.stages.large}
    return {name: spec for name, spec in specs.items() if spec is not None}


def round_budget_ms(release: Release, name: StageName) -> float:
    """Return what a round of a stage has at most: the deadline ends a stage of a larger budget sooner."""
    budgets = release.budgets
    most_ms = budgets.total_ms - budgets.reserve_ms
    return min(budgets.large_ms if name is StageName.LARGE else budgets.small_ms, most_ms)


def build_stage(
    name: StageName,
    spec: StageSpec,
    *,
    budget_ms: float,
    clock: Clock,
    pool: Workers,
    environment: Mapping[str, str],
    count_fault: Callable[[BaseException], None] = lambda error: None,
    transport_for: Callable[[HttpStage], httpx.AsyncBaseTransport] = build_transport,
    events: GuardEvents = _NO_EVENTS,
    work: WorkEvents = NO_WORK_EVENTS,
    draw: Callable[[], float] = random.random,
) -> Stage:
    """Return one stage, not yet started, as `build_stages` does; ``work`` is told of its work. Raises ConfigError."""
    match spec:
        case OnnxStage():
            return OnnxReranker(name, spec, pool, clock, count_fault, events=work)
        case EmbeddingStage():
            return EmbeddingReranker(name, spec, pool, clock, count_fault, events=work)
        case TeiStage() | VllmStage() | ApiStage() | HostedStage() | ChatStage():
            token = read_token(spec.auth, environment)
            kind, prose = (ListReranker, prose_bytes(spec)) if isinstance(spec, ChatStage) else (HttpReranker, 0)
            return kind(
                name,
                spec,
                wire_of(spec),
                Upstream(spec.url, transport_for(spec), token, connect_ms=spec.connect_ms, prose_bytes=prose),
                clock,
                count_fault,
                budget_ms=budget_ms,
                draw=draw,
                events=events,
                work=work,
            )
        case _:
            assert_never(spec)


def wire_of(spec: TeiStage | VllmStage | ApiStage | HostedStage | ChatStage) -> Wire:
    """Return the wire format of a stage. Raises ConfigError."""
    raw = spec.score_space is ScoreSpace.LOGIT
    match spec:
        case TeiStage():
            return TeiWire(raw_scores=raw, truncate=not serializer(spec.serializer).owns_template)
        case VllmStage():
            return VllmWire(spec.model, raw_scores=raw)
        case ApiStage() | HostedStage():
            return ApiWire(SHAPES[spec.adapter], spec.model, raw_scores=raw)
        case ChatStage():
            written = serializer(spec.serializer)
            if written.listed is None:
                raise ConfigError(f"serializer: {written.name} writes pairs, and adapter chat orders lists")
            return ChatWire(spec, written.listed)
        case _:
            assert_never(spec)
