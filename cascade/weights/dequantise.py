"""The full-precision model that a dynamically quantised one stands for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from cascade.errors import ConfigError
from cascade.stages.graph.graph import Array, Graph

__all__ = ["dequantise", "is_dynamic"]

_QUANTISED: Final = {
    "ConvInteger",
    "DynamicQuantizeLSTM",
    "DynamicQuantizeLinear",
    "DynamicQuantizeMatMul",
    "MatMulInteger",
    "MatMulIntegerToFloat",
    "MatMulNBits",
    "QAttention",
    "QLinearMatMul",
    "QuantizeLinear",
}


def is_dynamic(graph: Graph) -> bool:
    """Tell whether activations are quantised by what is in the call: then scores depend on batch mates."""
    return any(node.op_type.startswith("DynamicQuantize") for node in graph.nodes)


def dequantise(graph: Graph) -> int:
    """Put float32 weights, each its integer times its scale, in place of integer ones; return how many.

    A ``MatMulInteger`` of a dynamically quantised input becomes a ``MatMul`` of the input itself, an integer table
    behind ``DequantizeLinear`` (embeddings) a float32 one. Raises ConfigError where nothing is quantised so, or
    something that is quantised would be left.
    """
    made: dict[str, list[Any]] = {}
    for node in graph.nodes:
        if node.op_type == "MatMulInteger":
            product, replaced = _matmul(graph, node)
            made[product] = [replaced]
        elif node.op_type == "DequantizeLinear":
            made[node.output[0]] = [_table(graph, node)]
    if not made:
        raise ConfigError("weights: no dynamically quantised product is in this model")
    graph.set_nodes(_replaced(graph, made))
    left = sorted({node.op_type for node in graph.nodes} & _QUANTISED)
    if left:
        raise ConfigError(f"weights: {', '.join(left)} would be left in the model, which is not understood")
    return len(made)


def _replaced(graph: Graph, made: Mapping[str, list[Any]]) -> list[Any]:
    return [new for node in graph.nodes for new in made.get(node.output[0], [node])]


def _matmul(graph: Graph, node: Any) -> tuple[str, Any]:
    """Return the name of the scaled product, and the float product that makes it."""
    from onnx import helper

    quantised = graph.maker(node.input[0])
    cast = graph.only_reader(node.output[0])
    if quantised is None or quantised.op_type != "DynamicQuantizeLinear" or cast is None or cast.op_type != "Cast":
        raise _unknown(node)
    scaled = graph.only_reader(cast.output[0])
    if scaled is None or scaled.op_type != "Mul":
        raise _unknown(node)
    scales = next((graph.maker(name) for name in scaled.input if name != cast.output[0]), None)
    of_weight = [graph.constant(name) for name in scales.input] if scales is not None else []
    scale = next((value for value in of_weight if value is not None), None)
    weight = _float(graph, node.input[1], node.input[3] if len(node.input) > 3 else None, scale)
    if weight is None:
        raise _unknown(node)
    name = graph.add_constant(f"{node.input[1]}.float", weight)
    return scaled.output[0], helper.make_node("MatMul", [quantised.input[0], name], [scaled.output[0]], node.name)


def _table(graph: Graph, node: Any) -> Any:
    """Return what makes the float values: rows of a float table, or the table itself."""
    from onnx import helper

    gathered = graph.maker(node.input[0])
    rows = gathered is not None and gathered.op_type == "Gather"
    source = gathered.input[0] if rows and gathered is not None else node.input[0]
    scale = graph.constant(node.input[1])
    value = _float(graph, source, node.input[2] if len(node.input) > 2 else None, scale)
    if value is None or (scale is not None and scale.size > 1):
        raise _unknown(node)
    name = graph.add_constant(f"{source}.float", value)
    if rows and gathered is not None:
        return helper.make_node("Gather", [name, gathered.input[1]], [node.output[0]], gathered.name)
    return helper.make_node("Identity", [name], [node.output[0]], node.name)


def _float(graph: Graph, integers: str, zero_point: str | None, scale: Array | None) -> Array | None:
    """Return (integers - zero point) * scale in float32; a scale a column where there are several."""
    value, zero = graph.constant(integers), graph.constant(zero_point) if zero_point else np.int8(0)
    if value is None or zero is None or scale is None or value.dtype not in {np.dtype(np.int8), np.dtype(np.uint8)}:
        return None
    shifted = value.astype(np.float32) - np.asarray(zero, dtype=np.float32)
    return (shifted * scale.astype(np.float32)).astype(np.float32)


def _unknown(node: Any) -> ConfigError:
    return ConfigError(f"weights: {node.op_type} {node.name} stands in a form that is not understood")
