"""A rewritten graph scores as it did."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from cascade.errors import ConfigError
from cascade.policy.stage_specs import Weights
from cascade.stages.engine.tokens import Tokens
from cascade.stages.graph.attention import Form, fuse_attention
from cascade.stages.graph.graph import Graph, read_graph
from cascade.stages.onnx_model import OnnxModel
from cascade.stages.weights import ModelFiles
from cascade.weights.comparing import score_folder
from cascade.weights.fuse import Fused, fuse
from cascade.weights.making import make_fused
from cascade.weights.text_pairs import Lists


def _operators(path: Path) -> list[str]:
    return [node.op_type for node in read_graph(path).nodes]


@pytest.mark.parametrize("masked", [False, True])
def test_a_fused_model_scores_as_it_did(
    plain: ModelFiles, inputs: list[list[Tokens]], lists: Lists, tmp_path: Path, masked: bool
) -> None:
    """Every pair to 1e-4, and no attention is written out any more."""
    made = make_fused(plain, tmp_path, lists, 128, masked=masked)
    assert made.differences["the model as it was"].greatest < 1e-4
    ours, theirs = score_folder(tmp_path, inputs), score_folder(plain.model.parent, inputs)
    assert np.abs(np.concatenate(ours) - np.concatenate(theirs)).max() < 1e-4
    operators = _operators(tmp_path / "model.onnx")
    assert operators.count("MultiHeadAttention") == 2
    assert "Softmax" not in operators
    assert "the first token alone" in made.done


def test_a_masked_model_scores_the_same_in_a_batch(
    plain: ModelFiles, inputs: list[list[Tokens]], lists: Lists, tmp_path: Path
) -> None:
    """Padding is no part of it."""
    make_fused(plain, tmp_path, lists, 128, masked=True)
    model = OnnxModel(Weights(folder=str(tmp_path)))
    alone = [model.run([pair]).item() for pair in inputs[1]]
    np.testing.assert_allclose(model.run(inputs[1]).reshape(-1), alone, atol=1e-4)


def test_without_the_mask_the_model_does_not_ask_for_one(plain: ModelFiles, lists: Lists, tmp_path: Path) -> None:
    """Its inputs are the two that a single pair needs."""
    make_fused(plain, tmp_path, lists, 128)
    named = {item.name for item in read_graph(tmp_path / "model.onnx").model.graph.input}
    assert named == {"input_ids", "token_type_ids"}


def test_dynamic_int8_keeps_all_tokens_of_the_last_layer(dynamic: ModelFiles, lists: Lists, tmp_path: Path) -> None:
    """They are in the range that its activations are quantised by; both forms are told beside float32."""
    made = make_fused(dynamic, tmp_path, lists, 128)
    assert "first token" not in made.done
    assert set(made.differences) == {
        "the model as it was",
        "float32, the model as it was",
        "float32, this model",
    }


def test_a_model_that_reads_another_token_keeps_the_last_layer(
    plain: ModelFiles, inputs: list[list[Tokens]], tmp_path: Path
) -> None:
    """Only what is not read may go."""
    graph = _with_constant(read_graph(plain.model), _pooled_index(read_graph(plain.model)), np.array(1))
    (tmp_path / "plain").mkdir()
    graph.write(tmp_path / "plain" / "model.onnx")
    assert fuse(graph) == Fused(attentions=2, additions=5, first_token_only=False)
    (tmp_path / "fused").mkdir()
    graph.write(tmp_path / "fused" / "model.onnx")
    for folder in ("plain", "fused"):
        (tmp_path / folder / "tokenizer.json").symlink_to(plain.tokenizer)
    ours, theirs = score_folder(tmp_path / "fused", inputs), score_folder(tmp_path / "plain", inputs)
    assert np.abs(np.concatenate(ours) - np.concatenate(theirs)).max() < 1e-4


def test_an_attention_of_another_scale_is_refused(plain: ModelFiles, lists: Lists, tmp_path: Path) -> None:
    """It is found by the scores, and no file is written."""
    graph = read_graph(plain.model)
    scale = next(_scaled(graph, node).input[1] for node in graph.nodes if node.op_type == "Softmax")
    changed = tmp_path / "changed"
    changed.mkdir()
    _with_constant(graph, scale, np.array(1.5, dtype=np.float32)).write(changed / "model.onnx")
    files = ModelFiles(changed / "model.onnx", plain.tokenizer)
    (changed / "tokenizer.json").symlink_to(plain.tokenizer)
    with pytest.raises(ConfigError, match=r"scores up to .* differently"):
        make_fused(files, tmp_path / "out", lists, 128)
    assert not (tmp_path / "out").exists()


def test_a_model_without_attention_is_refused(plain: ModelFiles) -> None:
    """With how many were understood."""
    graph = read_graph(plain.model)
    for node in graph.nodes:
        if node.op_type == "Softmax":
            node.op_type = "Sigmoid"
            del node.attribute[:]
    graph.index()
    with pytest.raises(ConfigError, match="0 of 0 attentions"):
        fuse(graph)


def test_a_folder_that_has_a_model_is_not_written_to(plain: ModelFiles, lists: Lists) -> None:
    """The model there stays."""
    before = plain.model.read_bytes()
    with pytest.raises(ConfigError, match="a model is there already"):
        make_fused(plain, plain.model.parent, lists, 128)
    assert plain.model.read_bytes() == before


def _pooled_index(graph: Graph) -> str:
    return next(str(node.input[1]) for node in graph.nodes if node.op_type == "Gather" and "pooler" in node.name)


def _with_constant(graph: Graph, name: str, value: np.ndarray) -> Graph:
    """Give the readers of a constant another one."""
    new = graph.add_constant("changed", value)
    for node in graph.nodes:
        for place, given in enumerate(node.input):
            if given == name and (node.op_type != "Gather" or "pooler" in node.name):
                node.input[place] = new
    graph.index()
    return graph


@pytest.mark.parametrize("form", [Form.FAST, Form.EXACT])
@pytest.mark.parametrize("shape", [[0, 0, 4, 8], [0, 0, -1, 8], [0, -1, 2, 16]])
def test_heads_may_be_split_by_a_constant_shape(
    plain: ModelFiles, inputs: list[list[Tokens]], tmp_path: Path, shape: list[int], form: Form
) -> None:
    """As other exporters write it, several heads, their number said or left to be worked out; and without a mask."""
    graph = read_graph(plain.model)
    split = graph.add_constant("split", np.array(shape, dtype=np.int64))
    scale = graph.add_constant("scale", np.array(1 / np.sqrt(shape[-1]), dtype=np.float32))
    for node in graph.nodes:
        if node.op_type == "Reshape" and any(reader.op_type == "Transpose" for reader in graph.readers(node.output[0])):
            node.input[1] = split
        if node.op_type == "Softmax":
            scaled = _scaled(graph, node)
            scaled.input[1] = scale
            node.input[0] = scaled.output[0]
    graph.set_nodes(graph.nodes)
    for name in ("plain", "fused"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "tokenizer.json").symlink_to(plain.tokenizer)
        graph.write(tmp_path / name / "model.onnx")
        if name == "plain":
            assert fuse_attention(graph, form) == 2
    ours, theirs = score_folder(tmp_path / "fused", inputs), score_folder(tmp_path / "plain", inputs)
    assert np.abs(np.concatenate(ours) - np.concatenate(theirs)).max() < 1e-4


def _scaled(graph: Graph, softmax: Any) -> Any:
    """Return the node that scales what goes into a softmax, behind the mask."""
    masked = graph.maker(softmax.input[0])
    makers = [graph.maker(given) for given in masked.input] if masked is not None else []
    return next(node for node in makers if node is not None and node.op_type == "Mul")


def test_a_softmax_that_is_no_attention_is_refused(plain: ModelFiles) -> None:
    """Rather than left in a model that is called fused."""
    graph = read_graph(plain.model)
    for node in graph.nodes:
        if node.op_type == "Tanh":
            node.op_type = "Softmax"
    graph.index()
    with pytest.raises(ConfigError, match="2 of 3 attentions"):
        fuse(graph)


def test_an_output_that_reads_all_tokens_keeps_the_last_layer(plain: ModelFiles) -> None:
    """Such as one of the states themselves."""
    graph = read_graph(plain.model)
    pooled = next(node for node in graph.nodes if node.op_type == "Gather" and "pooler" in node.name)
    del graph.model.graph.output[:]
    graph.model.graph.output.append(helper.make_tensor_value_info(pooled.input[0], TensorProto.FLOAT, None))
    graph.set_nodes(graph.nodes)
    assert not fuse(graph).first_token_only


def test_a_folder_that_cannot_be_written_to_is_refused(plain: ModelFiles, lists: Lists, tmp_path: Path) -> None:
    """By its name: here a file stands where the folder would be."""
    (tmp_path / "out").write_text("", encoding="ascii")
    with pytest.raises(ConfigError, match="out: cannot be written"):
        make_fused(plain, tmp_path / "out", lists, 128)


def test_a_pair_longer_than_the_model_takes_is_told(plain: ModelFiles, tmp_path: Path) -> None:
    """By its length and what to say; onnxruntime's own words tell of the graph."""
    with pytest.raises(
        ConfigError, match=r"fails on a pair of 600 tokens: \w+; where it takes fewer, say so with --max"
    ):
        make_fused(plain, tmp_path / "out", {"a lamp": ["the lamp " * 600]}, 600)
    assert list(tmp_path.iterdir()) == []
