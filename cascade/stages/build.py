"""Make the stages of a release."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import assert_never

from cascade.guard.deadline import Clock
from cascade.policy.release import EmbeddingStage, HttpStage, OnnxStage, Release, StageSpec, TeiStage, VllmStage
from cascade.stages.base import Stage
from cascade.stages.embedding import EmbeddingReranker
from cascade.stages.http import HttpReranker
from cascade.stages.onnx import OnnxReranker
from cascade.stages.tei import TeiWire
from cascade.stages.upstream import Upstream, build_client, read_token
from cascade.stages.vllm import VllmWire
from cascade.stages.wire import Wire
from cascade.types import ScoreSpace, StageName

__all__ = ["build_stages"]


def build_stages(
    release: Release, *, clock: Clock, pool: ThreadPoolExecutor, environment: Mapping[str, str]
) -> dict[StageName, Stage]:
    """Return the stages that a release names, not yet started. Raises ConfigError."""
    specs = {StageName.SMALL: release.stages.small, StageName.LARGE: release.stages.large}
    return {name: _build(name, spec, clock, pool, environment) for name, spec in specs.items() if spec is not None}


def _build(
    name: StageName,
    spec: StageSpec,
    clock: Clock,
    pool: ThreadPoolExecutor,
    environment: Mapping[str, str],
) -> Stage:
    match spec:
        case OnnxStage():
            return OnnxReranker(name, spec, pool, clock)
        case EmbeddingStage():
            return EmbeddingReranker(name, spec, pool, clock)
        case TeiStage() | VllmStage():
            return HttpReranker(name, spec, _wire(spec), _upstream(spec, environment), clock)
        case _:
            assert_never(spec)


def _wire(spec: TeiStage | VllmStage) -> Wire:
    raw = spec.score_space is ScoreSpace.LOGIT
    return TeiWire(raw_scores=raw) if isinstance(spec, TeiStage) else VllmWire(spec.model, raw_scores=raw)


def _upstream(spec: HttpStage, environment: Mapping[str, str]) -> Upstream:
    return Upstream(spec.url, build_client(spec), read_token(spec.auth, environment))
