"""Small models on disk, and a pool."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from cascade.stages.engine.workers import Workers, worker_pool

_FIXTURES = Path(__file__).parents[1] / "fixtures" / "models"


@pytest.fixture
def pool() -> Iterator[Workers]:
    """Give two threads for embedded stages."""
    with worker_pool(2) as threads:
        yield threads


@pytest.fixture(scope="session")
def cross_encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a folder with a float32 cross-encoder of random weights."""
    folder = tmp_path_factory.mktemp("cross-encoder")
    shutil.copy(_FIXTURES / "micro-ce.onnx", folder / "model.onnx")
    shutil.copy(_FIXTURES / "micro-ce" / "tokenizer.json", folder / "tokenizer.json")
    return folder


@pytest.fixture(scope="session")
def bi_encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a folder with a model whose states are an embedding table's rows, so vectors can be worked out."""
    folder = tmp_path_factory.mktemp("bi-encoder")
    table = np.random.default_rng(7).normal(size=(40_000, 8)).astype(np.float32)
    graph = helper.make_graph(
        [helper.make_node("Gather", ["table", "input_ids"], ["states"])],
        "lookup",
        [helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["batch", "length"])],
        [helper.make_tensor_value_info("states", TensorProto.FLOAT, ["batch", "length", 8])],
        [numpy_helper.from_array(table, "table")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(model, folder / "model.onnx")
    shutil.copy(_FIXTURES / "micro-ce" / "tokenizer.json", folder / "tokenizer.json")
    return folder
