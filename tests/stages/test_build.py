"""Stages of a release, made and not yet started."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from cascade.errors import ConfigError
from cascade.policy.release import parse_release
from cascade.stages.build import build_stages
from cascade.stages.embedding import EmbeddingReranker
from cascade.stages.engine.workers import Workers
from cascade.stages.http import HttpReranker
from cascade.stages.onnx import OnnxReranker
from cascade.types import ScoreSpace, StageName

TEI = {"adapter": "tei", "url": "http://tei.test", "model": "m", "engine": "tei/1.9"}
VLLM = {"adapter": "vllm", "url": "http://vllm.test", "model": "m", "engine": "vllm/0.32"}


def release_with(**stages: dict[str, Any]) -> dict[str, Any]:
    """Write a release of the stages given."""
    return {
        "release": "r",
        "stages": stages,
        "depth": 10,
        "escalation": {"kind": "static", "top_m": 3} if "large" in stages else "none",
        "budgets": {"total_ms": 90, "small_ms": 30, "large_ms": 50, "reserve_ms": 7},
    }


async def test_each_stage_that_a_release_names_is_made_for_its_adapter(pool: Workers, tmp_path: Path) -> None:
    """Four adapters make three kinds of stage; none is started, so no server and no file is needed."""
    clock = asyncio.get_running_loop().time
    weights = {"folder": str(tmp_path)}
    first = build_stages(
        parse_release(release_with(small=TEI, large={**VLLM, "score_space": "probability"})),
        clock=clock,
        pool=pool,
        environment={},
    )
    second = build_stages(
        parse_release(
            release_with(
                small={"adapter": "onnx-embedding", "model": "e", "engine": "onnx", "weights": weights},
                large={"adapter": "onnx", "model": "c", "engine": "onnx", "weights": weights},
            )
        ),
        clock=clock,
        pool=pool,
        environment={},
    )
    assert [type(stage) for stage in first.values()] == [HttpReranker, HttpReranker]
    assert [stage.space for stage in first.values()] == [ScoreSpace.LOGIT, ScoreSpace.PROBABILITY]
    assert [type(stage) for stage in second.values()] == [EmbeddingReranker, OnnxReranker]
    assert first[StageName.SMALL].fingerprint.engine == "tei/1.9"
    assert [stage.observed for stage in first.values()] == [None, None]
    for stage in first.values():
        await stage.aclose()


def test_a_stage_that_is_not_named_is_not_made(pool: Workers) -> None:
    """A release without a large stage has none."""
    stages = build_stages(parse_release(release_with(small=TEI)), clock=lambda: 0.0, pool=pool, environment={})
    assert list(stages) == [StageName.SMALL]


def test_a_token_that_is_missing_stops_the_start(pool: Workers) -> None:
    """The environment that is handed over counts, and what it lacks is said."""
    release = parse_release(release_with(small={**TEI, "auth": {"env": "SMALL_KEY"}}))
    with pytest.raises(ConfigError, match="SMALL_KEY"):
        build_stages(release, clock=lambda: 0.0, pool=pool, environment={})
