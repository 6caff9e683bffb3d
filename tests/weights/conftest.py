"""A float32 cross-encoder of random weights, and what onnxruntime's own tool makes of it in dynamic int8."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

import numpy as np
import pytest

from cascade.stages.engine.tokens import Tokens
from cascade.stages.weights import ModelFiles
from cascade.weights.comparing import read_tokens
from cascade.weights.text_pairs import Lists

_FIXTURES = Path(__file__).parents[1] / "fixtures" / "models"
_WORDS = ("lighthouse", "keeper", "trims", "the", "lamp", "at", "dusk", "bread", "oven", "tide", "hours", "of", "water")


@pytest.fixture(scope="session")
def plain(tmp_path_factory: pytest.TempPathFactory) -> ModelFiles:
    """Give the float32 model."""
    return _laid_out(tmp_path_factory.mktemp("plain"), _FIXTURES / "micro-ce.onnx")


@pytest.fixture(scope="session")
def dynamic(tmp_path_factory: pytest.TempPathFactory) -> ModelFiles:
    """Give the model in dynamic int8."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    folder = tmp_path_factory.mktemp("dynamic")
    level = logging.root.level
    logging.root.setLevel(logging.ERROR)
    quantize_dynamic(_FIXTURES / "micro-ce.onnx", folder / "made.onnx", weight_type=QuantType.QInt8)
    logging.root.setLevel(level)
    return _laid_out(folder, folder / "made.onnx")


def _laid_out(folder: Path, model: Path) -> ModelFiles:
    files = ModelFiles(folder / "model.onnx", folder / "tokenizer.json")
    shutil.copy(model, files.model)
    shutil.copy(_FIXTURES / "micro-ce" / "tokenizer.json", files.tokenizer)
    return files


@pytest.fixture(scope="session")
def lists() -> Lists:
    """Give six queries of twelve documents, from two words to as many as are cut off."""
    draw = np.random.default_rng(3)
    documents = [" ".join(draw.choice(_WORDS, size)) for size in (2, 3, 5, 8, 12, 17, 23, 30, 38, 60, 90, 400)]
    return {" ".join(draw.choice(_WORDS, size)): documents for size in (3, 4, 6, 9, 5, 7)}


@pytest.fixture(scope="session")
def inputs(plain: ModelFiles, lists: Lists) -> list[list[Tokens]]:
    """Give the pairs as the model reads them."""
    return read_tokens(plain.tokenizer, lists, 128)
