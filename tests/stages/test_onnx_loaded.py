"""A cross-encoder that is loaded once, for stages that differ in the numbers of a batch alone."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from cascade.errors import ConfigError
from cascade.guard.deadline import Deadline
from cascade.stages.engine.workers import worker_pool
from cascade.stages.graph.exact import exact_form
from cascade.stages.onnx import OnnxReranker
from cascade.stages.onnx_loaded import LoadedCrossEncoder
from cascade.text import Text
from tests.stages.onnx_arrange import onnx_spec, reranker

_BATCHED: dict[str, Any] = {"batching": {"mode": "token-budget"}}
_TEXTS = [Text("the keeper trims the lamp"), Text("bread"), Text("a lighthouse by the sea")]


async def _scores(stage: OnnxReranker) -> list[float]:
    await stage.start()
    try:
        deadline = Deadline.after_ms(60_000.0, time.monotonic)
        scored = await stage.score(Text("how is a lamp kept"), _TEXTS, deadline=deadline, call_id="c")
    finally:
        await stage.aclose()
    return [score for score in scored.scores if score is not None]


async def test_stages_on_one_model_score_as_those_that_load_their_own(cross_encoder: Path, tmp_path: Path) -> None:
    """One pair a call bit for bit, in batches to the last digits; no file is read after the model is loaded."""
    folder = shutil.copytree(cross_encoder, tmp_path / "model")
    one, batched = onnx_spec(folder), onnx_spec(folder, **_BATCHED)
    with worker_pool(1) as pool:
        own = await _scores(reranker(one, pool))
        for_one, for_batches = LoadedCrossEncoder(one, rewritten=exact_form), LoadedCrossEncoder(batched)
        (folder / "model.onnx").unlink()
        shared = await _scores(reranker(one, pool, loaded=for_one))
        in_batches = await _scores(reranker(batched, pool, loaded=for_batches))
        for spec, loaded in ((one, for_batches), (batched, for_one)):
            with pytest.raises(ValueError, match="for one pair a call, or for batches"):
                reranker(spec, pool, loaded=loaded)
    assert shared == own
    assert len(own) == 3
    assert in_batches == pytest.approx(own, abs=1e-4)


def test_what_it_makes_of_fixed_pairs_is_measured_once(cross_encoder: Path) -> None:
    """Five pairs and a long one, alone and in batches; asked again the same is told."""
    loaded = LoadedCrossEncoder(onnx_spec(cross_encoder, **_BATCHED))
    assert len(loaded.alone) == 6
    assert loaded.batch_effect <= 1e-4
    assert loaded.alone is loaded.alone


async def test_a_stage_that_cannot_be_loaded_is_named(tmp_path: Path) -> None:
    """With the whole path of its folder."""
    with worker_pool(1) as pool:
        stage = reranker(onnx_spec(tmp_path), pool)
        with pytest.raises(ConfigError, match=rf"^large: weights: model.onnx is not in {tmp_path}$"):
            await stage.start()
