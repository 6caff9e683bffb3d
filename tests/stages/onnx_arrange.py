"""Embedded cross-encoders to score with: the specification, the stage, and models that answer what they are told."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import onnx
from onnx import TensorProto, helper

from cascade.guard.deadline import Deadline
from cascade.policy.release import OnnxStage
from cascade.stages.engine.workers import Workers
from cascade.stages.graph.exact import exact_form
from cascade.stages.onnx import OnnxReranker
from cascade.text import Text
from cascade.types import StageScores

__all__ = ["DOCUMENTS", "QUERY", "constant_model", "onnx_spec", "reranker", "score_with", "started"]

QUERY = "how is a lighthouse kept"
DOCUMENTS = [
    "the keeper trims the lamp",
    "bread is baked in an oven",
    "a tide table lists the hours of high water for each day of the year " * 6,
    "lamp",
    "the log records wind and weather " * 3,
]


def onnx_spec(folder: Path, **changes: Any) -> OnnxStage:
    """Declare a stage of the model in a folder; ``changes`` override."""
    fields = {"adapter": "onnx", "model": "m", "engine": "onnxruntime", "weights": {"folder": str(folder)}}
    return OnnxStage.model_validate({**fields, **changes})


def reranker(spec: OnnxStage, pool: Workers, **more: Any) -> OnnxReranker:
    """Return a stage that makes the exact form of attention in this process: the one that is begun for it costs seconds."""
    return OnnxReranker("large", spec, pool, time.monotonic, **{"rewritten": exact_form} | more)


@asynccontextmanager
async def started(spec: OnnxStage, pool: Workers, **more: Any) -> AsyncIterator[OnnxReranker]:
    """Give a stage, loaded, and give it back at the end."""
    stage = reranker(spec, pool, **more)
    await stage.start()
    yield stage
    await stage.aclose()


async def score_with(stage: OnnxReranker, documents: Sequence[str], query: str = QUERY) -> StageScores:
    """Score documents with a minute to do so."""
    deadline = Deadline.after_ms(60_000, time.monotonic)
    return await stage.score(Text(query), [Text(d) for d in documents], deadline=deadline, call_id="t")


def constant_model(folder: Path, cross_encoder: Path, values: list[float], inputs: list[str]) -> Path:
    """Write a model that answers the same values for any input."""
    folder.mkdir()
    graph = helper.make_graph(
        [
            helper.make_node(
                "Constant", [], ["logits"], value=helper.make_tensor("v", TensorProto.FLOAT, [len(values)], values)
            )
        ],
        "constant",
        [helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "length"]) for name in inputs],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, [len(values)])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(model, folder / "model.onnx")
    (folder / "tokenizer.json").write_bytes((cross_encoder / "tokenizer.json").read_bytes())
    return folder
