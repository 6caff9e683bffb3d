"""Find the attention of a BERT-like model, as exporters write it out, and put one operator in its place."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from cascade.errors import ConfigError
from cascade.stages.graph.graph import Graph

__all__ = ["DOMAIN", "Form", "fuse_attention"]

DOMAIN: Final = "com.microsoft"
_MASK: Final = "attention_mask"


class Form(StrEnum):
    """What a rewritten model may change. But for ``masked`` the input ``attention_mask`` goes, so pairs go one a call."""

    FAST = "fast"
    """Sums are taken in another order: onnxruntime works through the scores of an attention in tiles."""
    EXACT = "exact"
    """Every sum is taken in the order that it was."""
    MASKED = "masked"
    """Padding is masked, so that pairs may share a call; sums are taken in another order."""


@dataclass(frozen=True, slots=True)
class _Side:
    """A query, key or value: the projection (batch, tokens, width), the same in heads, and what it is scaled by there.

    ``shape`` is the number of heads and the width of one.
    """

    projected: str
    in_heads: str
    factors: tuple[tuple[str, str], ...]
    shape: tuple[int, int]


@dataclass(frozen=True, slots=True)
class _Attention:
    """What one attention reads, ``value`` in heads as well, and the value that it makes. ``scale`` None is not constant."""

    query: _Side
    key: _Side
    value: _Side
    value_in_order: str
    made: str
    scale: float | None


def fuse_attention(graph: Graph, form: Form) -> int:
    """Put ``MultiHeadAttention`` (onnxruntime's own operator) in place of every written-out attention; return how many.

    Raises ConfigError where no attention is found, or an attention stays.
    """
    from onnx import TensorProto, helper

    softmaxes = [node for node in graph.nodes if node.op_type == "Softmax"]
    found = {made.made: made for node in softmaxes if (made := _attention(graph, node)) is not None}
    if not found or len(found) < len(softmaxes):
        raise ConfigError(f"weights: {len(found)} of {len(softmaxes)} attentions stand in a form that is understood")
    masked = form is Form.MASKED
    padding = ["", f"{_MASK}.int32"] if masked else []
    nodes = [helper.make_node("Cast", [_MASK], padding[1:], "padding", to=TensorProto.INT32)] if masked else []
    for node in graph.nodes:
        part = found.get(node.output[0])
        if part is None:
            nodes.append(node)
        else:
            nodes += _in_order(part) if form is Form.EXACT else [_operator(part, padding)]
    if all(opset.domain != DOMAIN for opset in graph.model.opset_import):
        graph.model.opset_import.append(helper.make_opsetid(DOMAIN, 1))
    graph.set_nodes(nodes)
    return len(found)


def _operator(part: _Attention, padding: list[str]) -> Any:
    inputs = [part.query.projected, part.key.projected, part.value.projected, *padding]
    return _node(part, inputs, 1.0 / math.sqrt(part.query.shape[1]))


def _in_order(part: _Attention) -> list[Any]:
    """Return nodes that scale query and key by what they were scaled by, and attend without tiles.

    onnxruntime works in tiles unless keys and values come in heads.
    """
    from onnx import helper

    nodes = [
        helper.make_node(
            "Transpose", [part.key.in_heads], [f"{part.made}.key"], f"{part.made}.split", perm=[0, 2, 1, 3]
        )
    ]
    ends = []
    for start, side in ((part.query.projected, part.query), (f"{part.made}.key", part.key)):
        end = start
        for operator, factor in side.factors:
            nodes.append(helper.make_node(operator, [end, factor], [f"{end}.{part.made}"], f"{end}.{part.made}"))
            end = f"{end}.{part.made}"
        ends.append(end)
    return [*nodes, _node(part, [*ends, part.value_in_order], 1.0 if part.scale is None else part.scale)]


def _node(part: _Attention, inputs: list[str], scale: float) -> Any:
    from onnx import helper

    name = f"{part.made}.attention"
    heads = part.query.shape[0]
    return helper.make_node(
        "MultiHeadAttention", inputs, [part.made], name, domain=DOMAIN, num_heads=heads, scale=scale
    )


def _attention(graph: Graph, softmax: Any) -> _Attention | None:
    """Return the attention around a softmax: softmax(scale * query key' + mask) value, heads split and put together."""
    scores, scale = _unscaled(graph, _unmasked(graph, softmax.input[0]))
    weighted = graph.only_reader(softmax.output[0])
    if scores is None or scores.op_type != "MatMul" or weighted is None or weighted.op_type != "MatMul":
        return None
    query, key, value = (_split(graph, name) for name in (*scores.input, weighted.input[1]))
    together = graph.only_reader(weighted.output[0])
    made = graph.only_reader(together.output[0]) if together is not None and together.op_type == "Transpose" else None
    if made is None or made.op_type != "Reshape" or query is None or key is None or value is None:
        return None
    if not query.shape == key.shape == value.shape:
        return None
    return _Attention(query, key, value, weighted.input[1], made.output[0], scale)


def _unmasked(graph: Graph, name: str) -> str:
    """Return what the mask of padding is added to, the value itself where none is."""
    node = graph.maker(name)
    if node is None or node.op_type != "Add":
        return name
    of_mask = [_from_mask_alone(graph, given) for given in node.input]
    return str(node.input[of_mask.index(False)]) if sorted(of_mask) == [False, True] else name


def _from_mask_alone(graph: Graph, name: str) -> bool:
    """Tell whether a value is worked out of the mask and of shapes, not of weights."""
    seen, waiting, masked = set(), [name], False
    while waiting:
        name = waiting.pop()
        masked = masked or name == _MASK
        node = graph.maker(name)
        if node is None or name in seen:
            continue
        if node.op_type in {"MatMul", "Softmax", "LayerNormalization"}:
            return False
        seen.add(name)
        waiting += [] if node.op_type == "Shape" else list(node.input)
    return masked


def _unscaled(graph: Graph, name: str) -> tuple[Any | None, float | None]:
    """Return what makes the scores, and the constant that they are multiplied by, None where there is none."""
    node = graph.maker(name)
    factor = graph.constant(node.input[1]) if node is not None and node.op_type in {"Mul", "Div"} else None
    if node is None or factor is None or factor.size != 1:
        return node, None
    value = float(factor.reshape(-1)[0])
    return graph.maker(node.input[0]), value if node.op_type == "Mul" else 1.0 / value


def _split(graph: Graph, name: str) -> _Side | None:
    """Return a projection that is split into heads, None where it is not."""
    node, factors = graph.maker(name), []
    while node is not None and node.op_type in {"Mul", "Div", "Transpose"}:
        if node.op_type != "Transpose":
            factors.append((str(node.op_type), str(node.input[1])))
        node = graph.maker(node.input[0])
    if node is None or node.op_type != "Reshape":
        return None
    shape = graph.constant(node.input[1])
    listed = graph.maker(node.input[1])
    if shape is None and listed is not None and listed.op_type == "Concat":
        parts = [graph.constant(part) for part in listed.input[-2:]]
        sizes = [int(part.reshape(-1)[0]) for part in parts if part is not None and part.size == 1]
    else:
        sizes = [int(size) for size in shape.reshape(-1)[-2:]] if shape is not None else []
    if len(sizes) == 2 and -1 in sizes:
        sizes[sizes.index(-1)] = _columns(graph, node.input[0]) // max(sizes)
    if len(sizes) != 2 or min(sizes) <= 0:
        return None
    return _Side(str(node.input[0]), str(node.output[0]), tuple(reversed(factors)), (sizes[0], sizes[1]))


def _columns(graph: Graph, name: str) -> int:
    """Return the width of a projection by its weights or its bias, 0 where neither is found."""
    node = graph.maker(name)
    known = [value for given in node.input if (value := graph.constant(given)) is not None] if node is not None else []
    return int(known[0].shape[-1]) if known and known[0].ndim else 0
