"""Quantise a model to int8 with scales that are fixed beforehand, from calibration pairs."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from fnmatch import fnmatch
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import numpy as np

from cascade.errors import ConfigError
from cascade.stages.engine.tokens import Tokens
from cascade.stages.graph.graph import read_graph

__all__ = ["KEPT", "quantise_static"]

KEPT: Final = ("*pooler*", "*classifier*", "*layer.[0-9]/output/dense/*", "*layer.[0-9][0-9]/output/dense/*")
"""Products kept in float32: the head, and those behind a layer's GELU, whose inputs have rare, very large values."""

_PRODUCTS: Final = ("MatMul", "Gemm")


def quantise_static(source: Path, out: Path, inputs: Sequence[Tokens], keep: Sequence[str]) -> tuple[int, int]:
    """Write ``source``, a float32 model, to ``out`` with its products in int8; return how many are, and how many are not.

    Weights have a scale a column, activations one a tensor, from the least and the greatest value that the calibration
    inputs bring there (QuantizeLinear and DequantizeLinear nodes, which onnxruntime fuses). Products of two
    activations, and those whose name matches a pattern of ``keep``, stay. Raises ConfigError.
    """
    from onnxruntime.quantization import QuantFormat, QuantType, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    with TemporaryDirectory(dir=out.parent) as folder:
        prepared = Path(folder, "prepared.onnx")
        level = logging.root.level
        logging.root.setLevel(logging.ERROR)  # the tool advises what is done already
        try:
            quant_pre_process(str(source), str(prepared), skip_symbolic_shape=True)
            products = _products(prepared)
            kept = [name for name in products if any(fnmatch(name, pattern) for pattern in keep)]
            if len(kept) == len(products):
                raise ConfigError(f"weights: of {len(products)} products of this model none is left to quantise")
            quantize_static(
                str(prepared),
                str(out),
                _Calibration(inputs, {item.name for item in read_graph(prepared).model.graph.input}),
                quant_format=QuantFormat.QDQ,
                per_channel=True,
                activation_type=QuantType.QUInt8,
                weight_type=QuantType.QInt8,
                op_types_to_quantize=list(_PRODUCTS),
                nodes_to_exclude=kept,
                extra_options={"MatMulConstBOnly": True},
            )
        except ConfigError:
            raise
        except Exception as error:  # noqa: BLE001 - the tool raises undeclared types of its own
            raise ConfigError(f"weights: this model cannot be quantised: {type(error).__name__}") from None
        finally:
            logging.root.setLevel(level)
    return len(products) - len(kept), len(kept)


def _products(path: Path) -> list[str]:
    """Return the names of the products of a value with weights."""
    graph = read_graph(path)
    named = [node for node in graph.nodes if node.op_type in _PRODUCTS and graph.constant(node.input[1]) is not None]
    return [str(node.name) for node in named]


class _Calibration:
    """Give calibration inputs, one pair a call, in the form that onnxruntime's tool reads."""

    def __init__(self, inputs: Sequence[Tokens], names: set[str]) -> None:
        self._names = names
        self._left: Iterator[Tokens] = iter(inputs)

    def get_next(self) -> dict[str, Any] | None:
        tokens = next(self._left, None)
        if tokens is None:
            return None
        feeds = {
            "input_ids": tokens.ids[np.newaxis].astype(np.int64),
            "attention_mask": np.ones((1, len(tokens)), dtype=np.int64),
            "token_type_ids": tokens.type_ids[np.newaxis].astype(np.int64),
        }
        return {name: value for name, value in feeds.items() if name in self._names}
