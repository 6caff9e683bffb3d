"""The same weights in the forms that each library loads: folders made once of the packaged cross-encoder.

``int8`` is the packaged file; ``fp32`` what it stands for (`cascade weights dequantise`), also as torch's tensors;
``…-fused`` are graphs rewritten (`cascade weights fuse`), which only the sidecar is given.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np

from cascade.policy.release import OnnxStage
from cascade.rollout.load import default_release_path, load_release
from cascade.stages.graph.graph import Array, Graph, read_graph
from cascade.stages.weights import find_model
from cascade.weights.dequantise import dequantise
from cascade.weights.fuse import fuse

__all__ = ["model_folders", "torch_tensors", "write_safetensors"]

_CONFIG: Final = {
    "architectures": ["BertForSequenceClassification"],
    "model_type": "bert",
    "hidden_size": 384,
    "num_attention_heads": 12,
    "num_hidden_layers": 12,
    "intermediate_size": 1536,
    "vocab_size": 30522,
    "max_position_embeddings": 512,
    "type_vocab_size": 2,
    "pad_token_id": 0,
    "hidden_act": "gelu",
    "id2label": {"0": "LABEL_0"},
    "label2id": {"LABEL_0": 0},
    "sentence_transformers": {"activation_fn": "torch.nn.modules.linear.Identity"},
}
_TOKENIZER_FILES: Final = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.txt")
_FUSED: Final = "-fused"
_NAMES: Final = [precision + form for precision in ("int8", "fp32") for form in ("", _FUSED)]
_COMPLETE: Final = "complete"


def model_folders(folder: Path) -> dict[str, Path]:
    """Return the folders of each precision and form, by name, making them where one is missing."""
    release = load_release(default_release_path(), {}).release
    assert isinstance(release.stages.large, OnnxStage)  # noqa: S101 - the packaged default
    source = find_model(release.stages.large.weights).model.parent
    made = {name: folder / name for name in _NAMES}
    complete = folder / _COMPLETE
    if not complete.exists() or complete.read_text(encoding="utf-8") != "\n".join(_NAMES):
        shutil.rmtree(folder, ignore_errors=True)
        for path in made.values():
            _begin(source, path)
        shutil.copyfile(source / "model.onnx", made["int8"] / "model.onnx")
        graph = read_graph(source / "model.onnx")
        dequantise(graph)
        graph.write(made["fp32"] / "model.onnx")
        write_safetensors(made["fp32"] / "model.safetensors", dict(torch_tensors(graph)))
        for precision in ("int8", "fp32"):
            _for_others(made[precision])
            graph = read_graph(made[precision] / "model.onnx")
            fuse(graph)
            graph.write(made[precision + _FUSED] / "model.onnx")
        complete.write_text("\n".join(_NAMES), encoding="utf-8")
    return made


def _begin(source: Path, folder: Path) -> None:
    folder.mkdir(parents=True)
    for name in _TOKENIZER_FILES:
        shutil.copyfile(source / name, folder / name)
    (folder / "config.json").write_text(json.dumps(_CONFIG), encoding="utf-8")


def _for_others(folder: Path) -> None:
    """Lay the files out as sentence-transformers and FlashRank look for them."""
    (folder / "onnx").mkdir()
    (folder / "onnx" / "model.onnx").symlink_to(folder.resolve() / "model.onnx")
    name = "ms-marco-MiniLM-L-12-v2"
    ranked = folder.parent / f"{folder.name}-flashrank" / name
    shutil.copytree(folder, ranked, symlinks=True, ignore=shutil.ignore_patterns("onnx", "model.*"))
    (ranked / "flashrank-MiniLM-L-12-v2_Q.onnx").symlink_to(folder.resolve() / "model.onnx")


def torch_tensors(graph: Graph) -> Iterator[tuple[str, Array]]:
    """Yield the float32 model's tensors under the names that transformers gives them."""
    for node in graph.nodes:
        if node.op_type in {"MatMul", "Gather"} and (value := _weight(graph, node)) is not None:
            module = node.name.strip("/").rpartition("/")[0].replace("/", ".")
            yield f"{module}.weight", np.ascontiguousarray(value.T if node.op_type == "MatMul" else value)
    for tensor in graph.model.graph.initializer:
        if tensor.name.endswith((".bias", ".LayerNorm.weight")):
            value = graph.constant(tensor.name)
            if value is not None:
                yield tensor.name, value


def _weight(graph: Graph, node: Any) -> Array | None:
    name = node.input[1] if node.op_type == "MatMul" else node.input[0]
    value = graph.constant(name)
    return value if value is not None and value.dtype == np.float32 and value.ndim == 2 else None


def write_safetensors(path: Path, tensors: dict[str, Array]) -> None:
    """Write float32 tensors: a header of names, shapes and places, then the numbers."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    place = 0
    for name, value in tensors.items():
        header[name] = {"dtype": "F32", "shape": list(value.shape), "data_offsets": [place, place + value.nbytes]}
        place += value.nbytes
    told = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(len(told).to_bytes(8, "little") + told)
        for value in tensors.values():
            file.write(value.astype("<f4").tobytes())
