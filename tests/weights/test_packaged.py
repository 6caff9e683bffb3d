"""The packaged cross-encoder in its other forms: twelve heads, and query and key scaled before their product."""

from __future__ import annotations

from pathlib import Path

import pytest

from cascade.policy.release import OnnxStage
from cascade.rollout.load import default_release_path, load_release
from cascade.stages.weights import ModelFiles, find_model
from cascade.weights.making import make_dequantised, make_fused

pytestmark = pytest.mark.long

_LISTS = {"who keeps the lamp": ["The keeper trims the wick at dusk.", "Bread.", "Steel is made from iron ore. " * 9]}


@pytest.fixture(scope="module")
def packaged() -> ModelFiles:
    """Give the files of the default release's large stage."""
    large = load_release(default_release_path(), {}).release.stages.large
    assert isinstance(large, OnnxStage)
    return find_model(large.weights)


def test_the_float32_form_fused_scores_as_it_did(packaged: ModelFiles, tmp_path: Path) -> None:
    """To 1e-4, with the last layer of the first token alone."""
    made = make_dequantised(packaged, tmp_path / "float32", _LISTS, 512)
    assert made.done.startswith("77 quantised products and tables")
    floats = ModelFiles(tmp_path / "float32" / "model.onnx", tmp_path / "float32" / "tokenizer.json")
    fused = make_fused(floats, tmp_path / "fused", _LISTS, 512)
    assert "the first token alone" in fused.done
    assert fused.differences["the model as it was"].greatest < 1e-4
