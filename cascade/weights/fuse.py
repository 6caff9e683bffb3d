"""Rewrite a model's graph so that onnxruntime runs it faster on a CPU, with the same weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from cascade.stages.graph.attention import Form, fuse_attention
from cascade.stages.graph.graph import Graph
from cascade.weights.dequantise import is_dynamic

__all__ = ["Fused", "fuse"]

_NORMALISES: Final = {"LayerNormalization", "ReduceMean"}
_ROW_WISE: Final = {
    "Add", "Cast", "Div", "Erf", "Gelu", "Identity", "LayerNormalization", "MatMul", "Mul", "Pow", "ReduceMean",
    "Sqrt", "Sub", "Sum", "Tanh",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Fused:
    """How many attentions and additions were rewritten, and whether the last layer works on the first token alone."""

    attentions: int
    additions: int
    first_token_only: bool


def fuse(graph: Graph, *, masked: bool = False) -> Fused:
    """Rewrite a BERT-like cross-encoder. Raises ConfigError where its attention is not understood.

    Attention becomes one operator (see `fuse_attention`), which keeps the mask of padding where it is to be ``masked``. What
    is added before a normalisation is written as ``Sum``, as onnxruntime would make its slow ``SkipLayerNormalization`` of
    an ``Add``; and where nothing in the model is quantised by what is in the call, the last layer works out the first token
    alone, as nothing reads the others.
    """
    attentions = fuse_attention(graph, Form.MASKED if masked else Form.FAST)
    graph.forget_shapes()
    additions = 0
    for node in graph.nodes:
        read_by = {reader.op_type for reader in graph.readers(node.output[0])}
        if node.op_type == "Add" and read_by & _NORMALISES and all(graph.constant(name) is None for name in node.input):
            node.op_type = "Sum"
            additions += 1
    return Fused(attentions, additions, not is_dynamic(graph) and _first_token_only(graph))


def _first_token_only(graph: Graph) -> bool:
    """Have the last attention ask for the first token only, where just that is read of what follows."""
    from onnx import helper

    attention = [node for node in graph.nodes if node.op_type == "MultiHeadAttention"][-1]
    projected = _product(graph, attention.input[0])
    after = _between(graph, attention.output[0])
    if projected is None or after is None:
        return False
    states = projected.input[0]
    inside = {name for node in after for name in node.output} | {attention.output[0]}
    outside = {name for node in after for name in node.input if name not in inside and graph.constant(name) is None}
    if outside != {states}:
        return False
    first = graph.add_constant("first_token", np.array([0], dtype=np.int64))
    taken = helper.make_node("Gather", [states, first], [f"{states}.first"], "take_first_token", axis=1)
    for node in (projected, *after):
        for place, name in enumerate(node.input):
            if name == states:
                node.input[place] = taken.output[0]
    nodes = list(graph.nodes)
    nodes.insert(nodes.index(graph.maker(states)) + 1, taken)
    graph.set_nodes(nodes)
    return True


def _product(graph: Graph, name: str) -> Any | None:
    """Return the product with weights that alone makes a value, its bias beside, None where something else does."""
    node = graph.maker(name)
    if node is not None and node.op_type == "Add" and graph.only_reader(name) is not None:
        makers = [graph.maker(given) for given in node.input if graph.constant(given) is None]
        node = makers[0] if len(makers) == 1 else None
    if node is None or node.op_type != "MatMul" or graph.only_reader(node.output[0]) is None:
        return None
    return node if graph.constant(node.input[1]) is not None else None


def _between(graph: Graph, name: str) -> list[Any] | None:
    """Return the nodes from a value to where the first token is taken, None where one of them mixes tokens."""
    found: list[Any] = []
    waiting = [name]
    while waiting:
        for node in graph.readers(waiting.pop()):
            if any(node is known for known in found) or _takes_first(graph, node):
                continue
            if node.op_type not in _ROW_WISE or (node.op_type == "MatMul" and graph.constant(node.input[1]) is None):
                return None
            found.append(node)
            waiting += list(node.output)
    ends = [output.name for output in graph.model.graph.output]
    return None if any(name in ends for node in found for name in node.output) else found


def _takes_first(graph: Graph, node: Any) -> bool:
    if node.op_type != "Gather" or not any(item.name == "axis" and item.i == 1 for item in node.attribute):
        return False
    index = graph.constant(node.input[1])
    return index is not None and index.size == 1 and not int(index.reshape(-1)[0])
