"""Static int8 has fixed scales: scores near float32, and the same in any company."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from cascade.cli.weights import refuse_without_int8
from cascade.errors import ConfigError
from cascade.policy.stage_specs import Weights
from cascade.stages.engine.tokens import Tokens
from cascade.stages.graph.graph import read_graph
from cascade.stages.onnx_model import OnnxModel
from cascade.stages.weights import ModelFiles
from cascade.weights.making import make_static_int8
from cascade.weights.static_int8 import KEPT
from cascade.weights.text_pairs import Lists

_KEEP_HEAD = ("*pooler*", "*classifier*")


def _quantised(path: Path) -> int:
    return sum(node.op_type == "QuantizeLinear" for node in read_graph(path).nodes)


@pytest.mark.parametrize("given", ["plain", "dynamic"])
def test_scores_are_near_float32_and_do_not_depend_on_batch_mates(
    given: str, request: pytest.FixtureRequest, inputs: list[list[Tokens]], lists: Lists, tmp_path: Path
) -> None:
    """Whether it was made of float32 or of dynamic int8."""
    source: ModelFiles = request.getfixturevalue(given)
    made = make_static_int8(source, tmp_path, lists, 128, _KEEP_HEAD)
    assert made.done.startswith("12 products in int8, 2 kept")
    assert 0.0 < made.differences["float32"].greatest < 0.2
    assert _quantised(tmp_path / "model.onnx") > 0
    model = OnnxModel(Weights(folder=str(tmp_path), sha256=made.sha256))
    alone = [model.run([pair]).item() for pair in inputs[0]]
    np.testing.assert_allclose(model.run(inputs[0]).reshape(-1), alone, atol=1e-4)


def test_products_that_are_kept_by_name_stay_float32(plain: ModelFiles, lists: Lists, tmp_path: Path) -> None:
    """The default keeps the head and what stands behind a GELU, in each of the two layers."""
    made = make_static_int8(plain, tmp_path, lists, 128, KEPT)
    assert made.done.startswith("10 products in int8, 4 kept")


def test_keeping_everything_is_refused(plain: ModelFiles, lists: Lists, tmp_path: Path) -> None:
    """Nothing would be int8."""
    with pytest.raises(ConfigError, match="none is left to quantise"):
        make_static_int8(plain, tmp_path, lists, 128, ("*",))


@pytest.mark.parametrize(
    ("queries", "documents", "told"),
    [
        (1, 100, "one query alone is too few"),
        (2, 31, "31 pairs would calibrate, of every second query; 32 are the least"),
    ],
)
def test_too_few_pairs_are_refused(plain: ModelFiles, tmp_path: Path, queries: int, documents: int, told: str) -> None:
    """Scales of a few pairs hold for nothing else; and what calibrated does not compare. Nothing is written."""
    lists = {f"query {number}": ["a lamp"] * documents for number in range(queries)}
    with pytest.raises(ConfigError, match=told):
        make_static_int8(plain, tmp_path / "out", lists, 128, _KEEP_HEAD)
    assert list(tmp_path.iterdir()) == []


def test_few_pairs_are_doubted(plain: ModelFiles, tmp_path: Path) -> None:
    """Below two hundred it is said; with two hundred nothing is."""
    doubts = [
        make_static_int8(plain, tmp_path / str(count), {"a": ["lamp"] * count, "b": ["oven"]}, 16, _KEEP_HEAD).doubts
        for count in (199, 200)
    ]
    assert [len(each) for each in doubts] == [1, 0]


@pytest.mark.parametrize("instructions", [None, frozenset({"avx2", "fma"})])
def test_a_cpu_without_an_int8_dot_product_is_refused(instructions: frozenset[str] | None) -> None:
    """One that is not known too."""
    with pytest.raises(ConfigError, match="no int8 dot product"):
        refuse_without_int8(instructions)


def test_a_cpu_with_one_is_taken() -> None:
    """By the name that Linux gives it."""
    refuse_without_int8(frozenset({"avx2", "avx512_vnni"}))
