"""Dynamic int8 becomes the float32 that it stands for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from cascade.errors import ConfigError
from cascade.policy.stage_specs import Weights
from cascade.stages.engine.tokens import Tokens
from cascade.stages.graph.graph import Graph, read_graph
from cascade.stages.onnx_model import OnnxModel
from cascade.stages.weights import ModelFiles
from cascade.weights.dequantise import dequantise, is_dynamic
from cascade.weights.making import make_dequantised
from cascade.weights.text_pairs import Lists

_INTEGERS = np.array([[3, -7, 120], [0, 5, -128]], dtype=np.int8)
_ZERO = np.array([1, -2, 0], dtype=np.int8)
_SCALE = np.array([0.5, 0.25, 0.125], dtype=np.float32)


def _one_product(*, second: str = "Mul") -> Graph:
    """Return x times a weight with a scale and a zero point a column, as onnxruntime's tool writes it."""
    nodes = [
        helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "q_scale", "q_zero"]),
        helper.make_node("MatMulInteger", ["q", "w", "q_zero", "w_zero"], ["product"]),
        helper.make_node("Cast", ["product"], ["real"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["q_scale", "w_scale"], ["scales"]),
        helper.make_node(second, ["real", "scales"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "one",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 2])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 3])],
        [numpy_helper.from_array(v, n) for n, v in (("w", _INTEGERS), ("w_zero", _ZERO), ("w_scale", _SCALE))],
    )
    return Graph(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9))


def test_a_weight_is_its_integers_less_the_zero_point_times_the_scale() -> None:
    """Column by column, and the input goes in as it is."""
    graph = _one_product()
    assert is_dynamic(graph)
    assert dequantise(graph) == 1
    assert [node.op_type for node in graph.nodes] == ["MatMul"]
    assert not is_dynamic(graph)
    session = onnxruntime.InferenceSession(graph.model.SerializeToString(), providers=["CPUExecutionProvider"])
    x = np.array([[1.5, -2.0]], dtype=np.float32)
    expected = x @ ((_INTEGERS.astype(np.float32) - _ZERO) * _SCALE)
    np.testing.assert_array_equal(session.run(None, {"x": x})[0], expected)


def test_a_model_that_is_not_quantised_is_refused(plain: ModelFiles, tmp_path: Path, lists: Lists) -> None:
    """And nothing is left behind."""
    with pytest.raises(ConfigError, match="no dynamically quantised product"):
        make_dequantised(plain, tmp_path / "out", lists, 128)
    assert not (tmp_path / "out").exists()


def test_a_form_that_is_not_understood_is_refused() -> None:
    """Rather than written half."""
    with pytest.raises(ConfigError, match=r"MatMulInteger .* not understood"):
        dequantise(_one_product(second="Div"))


@pytest.mark.parametrize("operator", ["QuantizeLinear", "MatMulNBits"])
def test_a_model_that_would_stay_quantised_in_part_is_refused(operator: str) -> None:
    """By what would be left."""
    graph = _one_product()
    left = helper.make_node(operator, ["y"], ["z"])
    graph.model.graph.output.append(helper.make_tensor_value_info("z", TensorProto.FLOAT, None))
    graph.set_nodes([*graph.nodes, left])
    with pytest.raises(ConfigError, match=f"{operator} would be left"):
        dequantise(graph)


@pytest.mark.parametrize("changed", ["w", "w_scale", "w_zero"])
def test_a_weight_that_is_worked_out_is_refused(changed: str) -> None:
    """Only what is fixed can be turned back."""
    graph = _one_product()
    held = graph.model.graph.initializer
    kept = [tensor for tensor in held if tensor.name != changed]
    del held[:]
    held.extend(kept)
    graph.index()
    with pytest.raises(ConfigError, match="not understood"):
        dequantise(graph)


def test_a_file_that_is_no_model_is_refused(tmp_path: Path) -> None:
    """By its name."""
    (tmp_path / "model.onnx").write_bytes(b"\xff\xfe no model")
    with pytest.raises(ConfigError, match="cannot be read as ONNX"):
        read_graph(tmp_path / "model.onnx")


def test_the_float32_model_scores_near_and_without_batch_mates(
    plain: ModelFiles, dynamic: ModelFiles, inputs: list[list[Tokens]], lists: Lists, tmp_path: Path
) -> None:
    """It is nearer to what was quantised than the int8 model, and a pair scores the same in any company."""
    made = make_dequantised(dynamic, tmp_path / "out", lists, 128)
    assert made.differences["the quantised model"].pairs == sum(map(len, inputs))
    first = OnnxModel(Weights(folder=str(plain.model.parent)))
    floats = OnnxModel(Weights(folder=str(tmp_path / "out"), sha256=made.sha256))
    integers = OnnxModel(Weights(folder=str(dynamic.model.parent)))
    pairs = inputs[0]

    def alone(model: OnnxModel) -> np.ndarray:
        return np.array([model.run([pair]).item() for pair in pairs])

    assert np.abs(floats.run(pairs).reshape(-1) - alone(floats)).max() < 1e-4
    assert np.abs(integers.run(pairs).reshape(-1) - alone(integers)).max() > 1e-4
    assert np.abs(alone(floats) - alone(first)).mean() < np.abs(alone(integers) - alone(first)).mean()


def test_what_is_written_is_a_valid_model(dynamic: ModelFiles, lists: Lists, tmp_path: Path) -> None:
    """By onnx's own check."""
    make_dequantised(dynamic, tmp_path, lists, 128)
    onnx.checker.check_model(tmp_path / "model.onnx")
