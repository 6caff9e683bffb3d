"""The exact form of a model's file, made in memory: its attention as one operator, every sum in the order that it was."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Final

from cascade.stages.graph.attention import Form, fuse_attention
from cascade.stages.graph.graph import Graph

__all__ = ["MOST_BYTES", "WhyExported", "exact_form"]

MOST_BYTES: Final = 512 * 2**20
"""The largest file that is rewritten: it is in memory about three times over meanwhile, in a process of its own."""


class WhyExported(StrEnum):
    """Why a model runs with the attention that it was exported with, though the exact form was asked for."""

    NO_ONNX = "the package onnx is not installed"
    TOO_LONG = "pairs may be longer than 1024 tokens, the longest that both forms are compared on"
    TOO_LARGE = "the file is larger than 512 MiB"
    NOT_READ = "the file cannot be read once more"
    WEIGHTS_BESIDE = "weights lie in a file beside the graph"
    NOT_MADE = "the process that rewrites it did not answer"
    NOT_UNDERSTOOD = "its attention stands in no form that is understood"
    NOT_COMPARED = "it answers fixed pairs, and not the random ids that both forms are compared on"
    NOT_LOADED = "onnxruntime does not run the exact form"
    OTHER_BITS = "the exact form scores other bits here"


def exact_form(path: Path) -> bytes | WhyExported:
    """Return the model with its attention rewritten, or why it is not. Its weights are the same; it reads no mask.

    No graph, of whatever kind, keeps a stage from being loaded.
    """
    try:
        import onnx
    except ImportError:
        return WhyExported.NO_ONNX
    try:
        if path.stat().st_size > MOST_BYTES:
            return WhyExported.TOO_LARGE
        model = onnx.load(path, load_external_data=False)
        if any(tensor.data_location == onnx.TensorProto.EXTERNAL for tensor in model.graph.initializer):
            return WhyExported.WEIGHTS_BESIDE
        graph = Graph(model)
        fuse_attention(graph, Form.EXACT)
        return graph.to_bytes()
    except (OSError, MemoryError):
        return WhyExported.NOT_READ
    except Exception:  # noqa: BLE001 - graphs of any origin, read by a library whose types differ by version
        return WhyExported.NOT_UNDERSTOOD
