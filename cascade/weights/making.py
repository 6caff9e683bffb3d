"""Make a model's other forms in a folder, whole or not at all, and compare them with what they were made of."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from cascade.errors import ConfigError
from cascade.stages.engine.tokens import Tokens
from cascade.stages.graph.graph import read_graph
from cascade.stages.weights import ModelFiles
from cascade.weights.comparing import Difference, Scores, difference, read_tokens, score_folder
from cascade.weights.dequantise import dequantise, is_dynamic
from cascade.weights.fuse import fuse
from cascade.weights.static_int8 import quantise_static
from cascade.weights.text_pairs import Lists

__all__ = ["FEWEST_CALIBRATING", "Made", "make_dequantised", "make_fused", "make_static_int8"]

_MODEL: Final = "model.onnx"
_TOKENIZER: Final = "tokenizer.json"
FEWEST_CALIBRATING: Final = 32
_FEW_CALIBRATING: Final = 200
_ROUNDING: Final = 1e-3
"""Most that a rewritten float32 model may differ by: sums in another order differ by about 1e-5."""


@dataclass(frozen=True, slots=True)
class Made:
    """What was done, the files' SHA-256, and how the scores differ from those of each model by its description.

    ``doubts`` say what makes it less sure than it looks.
    """

    done: str
    sha256: dict[str, str]
    differences: dict[str, Difference]
    doubts: tuple[str, ...] = ()


def make_dequantised(source: ModelFiles, out: Path, lists: Lists, max_length: int) -> Made:
    """Write the float32 model that a dynamically quantised one stands for. Raises ConfigError."""
    inputs = read_tokens(source.tokenizer, lists, max_length)
    with _begun(source, out) as made:
        graph = read_graph(source.model)
        replaced = dequantise(graph)
        graph.write(made / _MODEL)
        apart = difference(score_folder(source.model.parent, inputs), score_folder(made, inputs))
        digests = _digests(made)
    return Made(f"{replaced} quantised products and tables are float32", digests, {"the quantised model": apart})


def make_fused(source: ModelFiles, out: Path, lists: Lists, max_length: int, *, masked: bool = False) -> Made:
    """Write a model whose graph onnxruntime runs faster. Raises ConfigError where it scores differently.

    Of a dynamically quantised one the float32 forms are held against each other.
    """
    inputs = read_tokens(source.tokenizer, lists, max_length)
    with _begun(source, out) as made:
        graph = read_graph(source.model)
        dynamic = is_dynamic(graph)
        done = fuse(graph, masked=masked)
        graph.write(made / _MODEL)
        before, fused = score_folder(source.model.parent, inputs), score_folder(made, inputs)
        differences = {"the model as it was": difference(before, fused)}
        checked = differences["the model as it was"]
        if dynamic:
            with TemporaryDirectory(dir=made) as folder:
                plain, checked = _in_float32(source, Path(folder), inputs, masked=masked)
            differences["float32, the model as it was"] = difference(plain, before)
            differences["float32, this model"] = difference(plain, fused)
        if checked.greatest > _ROUNDING:
            raise ConfigError(f"weights: the rewritten model scores up to {checked.greatest:.2g} differently")
        digests = _digests(made)
    last = ", the last layer of the first token alone" if done.first_token_only else ""
    return Made(f"{done.attentions} attentions and {done.additions} additions rewritten{last}", digests, differences)


def _in_float32(
    source: ModelFiles, folder: Path, inputs: Sequence[Sequence[Tokens]], *, masked: bool
) -> tuple[Scores, Difference]:
    """Return the scores of a model's float32 form, and how far those of the rewritten one are off."""
    plain, rewritten = (_floats(source, folder / name) for name in ("plain", "rewritten"))
    graph = read_graph(rewritten / _MODEL)
    fuse(graph, masked=masked)
    graph.write(rewritten / _MODEL)
    scores = score_folder(plain, inputs)
    return scores, difference(scores, score_folder(rewritten, inputs))


def make_static_int8(source: ModelFiles, out: Path, lists: Lists, max_length: int, keep: Sequence[str]) -> Made:
    """Write an int8 model with fixed scales, from a float32 or a dynamically quantised one. Raises ConfigError.

    Every second query calibrates, the others compare: there are to be two at least, and `FEWEST_CALIBRATING` pairs of those
    that calibrate.
    """
    calibrating = sum(map(len, list(lists.values())[::2]))
    if len(lists) < 2:
        raise ConfigError("weights: every second query calibrates, the others compare: one query alone is too few")
    if calibrating < FEWEST_CALIBRATING:
        raise ConfigError(
            f"weights: {calibrating} pairs would calibrate, of every second query; {FEWEST_CALIBRATING} are the least, "
            "some hundred are better"
        )
    inputs = read_tokens(source.tokenizer, lists, max_length)
    held = inputs[1::2]
    with _begun(source, out) as made, TemporaryDirectory(dir=made) as folder:
        plain = source.model.parent
        if is_dynamic(read_graph(source.model)):
            plain = _floats(source, Path(folder, "float"))
        chosen = [tokens for pairs in inputs[::2] for tokens in pairs]
        quantised, kept = quantise_static(plain / _MODEL, made / _MODEL, chosen, keep)
        apart = difference(score_folder(plain, held), score_folder(made, held))
        digests = _digests(made)
    done = f"{quantised} products in int8, {kept} kept in float32; {calibrating} pairs calibrated"
    few = f"{calibrating} pairs calibrated: with fewer than {_FEW_CALIBRATING} the scales may not hold for your traffic"
    return Made(done, digests, {"float32": apart}, (few,) if calibrating < _FEW_CALIBRATING else ())


def _floats(source: ModelFiles, folder: Path) -> Path:
    folder.mkdir()
    shutil.copyfile(source.tokenizer, folder / _TOKENIZER)
    graph = read_graph(source.model)
    dequantise(graph)
    graph.write(folder / _MODEL)
    return folder


@contextmanager
def _begun(source: ModelFiles, out: Path) -> Iterator[Path]:
    """Give a folder to work in; its files come to ``out`` at the end, or nothing does."""
    if out.exists() and any((out / name).exists() for name in (_MODEL, _TOKENIZER)):
        raise ConfigError(f"{out}: a model is there already")
    whole = out.absolute()
    there = next(place for place in (whole, *whole.parents) if place.exists())
    try:
        with TemporaryDirectory(dir=there) as folder:
            made = Path(folder)
            shutil.copyfile(source.tokenizer, made / _TOKENIZER)
            yield made
            out.mkdir(parents=True, exist_ok=True)
            for name in (_TOKENIZER, _MODEL):
                (made / name).replace(out / name)
    except OSError as error:
        raise ConfigError(f"{out}: cannot be written: {type(error).__name__}") from None


def _digests(folder: Path) -> dict[str, str]:
    return {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in (_MODEL, _TOKENIZER)}
