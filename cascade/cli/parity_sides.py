"""Make the sides of ``cascade parity`` of what was written on the command line."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import assert_never

from cascade.errors import ConfigError
from cascade.parity.live import Live
from cascade.parity.sides import EndpointSide, Side, StageSide, TableSide, endpoint_release
from cascade.parity.sources import Source, source_of
from cascade.parity.token_ids import token_reader
from cascade.policy.release import EmbeddingStage, Release, Stages, StageSpec
from cascade.replay.table import ScoreTable, read_table
from cascade.rollout.load import load_release, named_release
from cascade.stages.build import build_stages
from cascade.stages.engine.workers import Workers
from cascade.types import StageName

__all__ = ["open_sides"]


def open_sides(
    ref: Side, cand: Side, pool: Callable[[], Workers], environment: Mapping[str, str] = os.environ
) -> tuple[Source | Live, Source | Live]:
    """Read tables and build stages, which are not started. A table that both sides name is read once. Raises ConfigError."""
    tables: dict[Path, ScoreTable] = {}

    def opened(name: str, side: Side) -> Source | Live:
        match side:
            case TableSide(path, column):
                if path not in tables:
                    tables[path] = read_table(path)
                return source_of(path.name, tables[path], column)
            case StageSide(path, stage):
                return _live(name, _release(path, environment), stage, pool(), environment)
            case EndpointSide():
                return _live(name, endpoint_release(name, side), StageName.LARGE, pool(), environment)
            case _:
                assert_never(side)

    return opened("REF", ref), opened("CAND", cand)


def _release(path: Path, environment: Mapping[str, str]) -> Release:
    return load_release(named_release(path), environment).release


def _live(name: str, release: Release, stage: StageName, pool: Workers, environment: Mapping[str, str]) -> Live:
    spec = release.stages.small if stage is StageName.SMALL else release.stages.large
    if spec is None:
        raise ConfigError(f"{name}: the release {release.release} has no {stage} stage")
    if spec.orders:
        raise ConfigError(f"{name}: adapter {spec.adapter} orders lists, and has no scores to compare")
    spec = _without_memory(spec)
    read = token_reader(spec)
    if read is not None:
        import onnxruntime  # noqa: F401 - its own memory is then no side's
    small, large = (spec, None) if stage is StageName.SMALL else (None, spec)
    alone = release.model_copy(update={"stages": Stages.model_construct(small=small, large=large)})
    built = build_stages(alone, clock=time.monotonic, pool=pool, environment=environment)
    return Live(built[stage], read)


def _without_memory(spec: StageSpec) -> StageSpec:
    """Have a bi-encoder keep no vectors: a score that is only read again tells nothing, and costs nothing."""
    return spec.model_copy(update={"cached_vectors": 0}) if isinstance(spec, EmbeddingStage) else spec
