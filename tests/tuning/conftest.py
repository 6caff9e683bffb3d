"""A small model on disk."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

_MODELS = Path(__file__).parents[1] / "fixtures" / "models"


@pytest.fixture
def cross_encoder(tmp_path: Path) -> Path:
    """Give a folder with a float32 cross-encoder of random weights."""
    folder = tmp_path / "cross-encoder"
    folder.mkdir()
    shutil.copy(_MODELS / "micro-ce.onnx", folder / "model.onnx")
    shutil.copy(_MODELS / "micro-ce" / "tokenizer.json", folder / "tokenizer.json")
    return folder
