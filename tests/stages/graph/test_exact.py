"""The exact form of a model's file scores the same bits, or the file stays as it is."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest

from cascade.policy.release import OnnxStage, Weights
from cascade.rollout.load import default_release_path, load_release
from cascade.stages.engine.drawn import LENGTHS, drawn_inputs
from cascade.stages.engine.tokens import Tokens
from cascade.stages.graph import apart
from cascade.stages.graph.apart import exact_form_apart
from cascade.stages.graph.exact import MOST_BYTES, WhyExported, exact_form
from cascade.stages.onnx_model import OnnxModel
from cascade.stages.weights import find_model
from tests.stages.onnx_arrange import constant_model


def _inputs(lengths: Iterator[int], vocabulary: int) -> list[Tokens]:
    draw = np.random.default_rng(5)
    types = (np.arange(1024) > 8).astype(np.int64)
    return [Tokens(draw.integers(vocabulary, size=length), types[:length]) for length in lengths]


def _bits(model: OnnxModel, inputs: list[Tokens]) -> list[bytes]:
    return [model.run([each]).tobytes() for each in inputs]


def test_every_length_of_a_small_model_has_the_same_bits(cross_encoder: Path) -> None:
    """From the shortest pair to the longest, on ids that the comparison at load does not draw."""
    inputs = _inputs(iter(range(3, 513)), 206)
    model = OnnxModel(Weights(folder=str(cross_encoder)))
    before = _bits(model, inputs)
    exact = exact_form(cross_encoder / "model.onnx")
    assert isinstance(exact, bytes)
    model.open(exact)
    assert _bits(model, inputs) == before
    assert len(set(before)) > 500


def test_the_packaged_int8_model_has_the_same_bits() -> None:
    """At lengths that the comparison at load does not draw, up to nearly the longest."""
    large = load_release(default_release_path(), {}).release.stages.large
    assert isinstance(large, OnnxStage)
    lengths = range(36, 500, 90)
    assert not set(lengths) & set(LENGTHS)
    inputs = _inputs(iter(lengths), 30_000)
    model = OnnxModel(large.weights)
    before = _bits(model, inputs)
    exact = exact_form(find_model(large.weights).model)
    assert isinstance(exact, bytes)
    model.open(exact)
    assert _bits(model, inputs) == before


def test_attention_alone_is_rewritten_and_reads_no_mask(cross_encoder: Path) -> None:
    """No weight, and nothing else of the graph, is another."""
    exact = exact_form(cross_encoder / "model.onnx")
    assert isinstance(exact, bytes)
    ours, theirs = onnx.load_from_string(exact), onnx.load(cross_encoder / "model.onnx")
    assert {item.name for item in ours.graph.input} == {"input_ids", "token_type_ids"}
    assert [node.op_type for node in ours.graph.node].count("MultiHeadAttention") == 2
    weights = {item.name: item.raw_data for item in theirs.graph.initializer}
    assert all(weights[item.name] == item.raw_data for item in ours.graph.initializer)


def _large(folder: Path, model: Path) -> None:
    with (folder / "model.onnx").open("wb") as file:
        file.truncate(MOST_BYTES + 1)


def _beside(folder: Path, model: Path) -> None:
    onnx.save_model(
        onnx.load(model), folder / "model.onnx", save_as_external_data=True, location="weights.bin", size_threshold=0
    )


def _unknown(folder: Path, model: Path) -> None:
    shutil.copy(constant_model(folder / "made", model.parent, [1.0], ["input_ids"]) / "model.onnx", folder)


def _garbage(folder: Path, model: Path) -> None:
    (folder / "model.onnx").write_bytes(b"no graph")


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (_large, WhyExported.TOO_LARGE),
        (_beside, WhyExported.WEIGHTS_BESIDE),
        (_unknown, WhyExported.NOT_UNDERSTOOD),
        (_garbage, WhyExported.NOT_UNDERSTOOD),
    ],
)
def test_what_cannot_be_rewritten_is_told(
    tmp_path: Path, cross_encoder: Path, make: Callable[[Path, Path], None], why: WhyExported
) -> None:
    """Without an error: such a model runs as it is."""
    make(tmp_path, cross_encoder / "model.onnx")
    assert exact_form(tmp_path / "model.onnx") is why


def test_without_onnx_nothing_is_rewritten(cross_encoder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is no library that serving needs."""
    monkeypatch.setitem(sys.modules, "onnx", None)
    assert exact_form(cross_encoder / "model.onnx") is WhyExported.NO_ONNX


def test_a_process_of_its_own_answers_the_same(cross_encoder: Path, tmp_path: Path) -> None:
    """The bytes of the exact form, or the reason why there is none."""
    file = cross_encoder / "model.onnx"
    assert exact_form_apart(file) == exact_form(file)
    assert exact_form_apart(tmp_path / "none.onnx") is WhyExported.NOT_READ


def test_a_process_that_fails_is_no_error(cross_encoder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither one that cannot be started, nor one that ends without an answer, nor one that takes too long."""
    file = cross_encoder / "model.onnx"
    for interpreter in ("/nonexistent/python", "/bin/false", "/bin/true"):
        monkeypatch.setattr(sys, "executable", interpreter)
        assert exact_form_apart(file) is WhyExported.NOT_MADE
    monkeypatch.undo()
    monkeypatch.setattr(apart, "_MOST_S", 0.001)
    assert exact_form_apart(file) is WhyExported.NOT_MADE


@pytest.mark.parametrize("longest", [8, 128, 512, 1024])
def test_drawn_inputs_are_of_every_listed_length_and_the_same_every_time(longest: int) -> None:
    """None is longer than the stage reads; ids are known ones, segments those of the longest pair."""
    types = (np.arange(longest) > 4).astype(np.int64)
    pair = Tokens(np.zeros(longest, dtype=np.int64), types)
    first, again = drawn_inputs(pair, 100), drawn_inputs(pair, 100)
    assert [len(each) for each in first] == [length for length in LENGTHS if length <= longest]
    for one, other in zip(first, again, strict=True):
        np.testing.assert_array_equal(one.ids, other.ids)
        np.testing.assert_array_equal(one.type_ids, types[: len(one)])
        assert 0 <= one.ids.min() <= one.ids.max() < 100


@pytest.mark.parametrize("tile", [2, 4, 6, 12, 16, 32])
def test_every_remainder_of_rows_and_columns_is_drawn(tile: int) -> None:
    """Lengths up to 34 alone have them all."""
    assert {length % tile for length in LENGTHS if length <= 34} == set(range(tile))
