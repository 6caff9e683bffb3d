"""``cascade weights``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from cascade.errors import ConfigError
from cascade.parity.sides import StageSide, parse_side
from cascade.policy.stage_specs import OnnxStage, Weights
from cascade.rollout.load import load_release, named_release
from cascade.stages.cores import cpu_instructions, has_int8_instructions
from cascade.stages.weights import ModelFiles, find_model
from cascade.types import StageName
from cascade.weights.comparing import Difference
from cascade.weights.making import Made, make_dequantised, make_fused, make_static_int8
from cascade.weights.static_int8 import KEPT
from cascade.weights.text_pairs import Lists, built_in_lists, read_lists

__all__ = ["app", "refuse_without_int8"]

app = typer.Typer(no_args_is_help=True, help="Make other forms of a cross-encoder's weights.")

Model = Annotated[
    str, typer.Argument(help="Folder with model.onnx and tokenizer.json, or RELEASE.yaml#STAGE of an onnx stage.")
]
Out = Annotated[Path, typer.Argument(help="Folder that the new files are written to.")]
Texts = Annotated[
    Path | None,
    typer.Option(help="Pairs to compare on: query, tab, document on a line. Unset: built-in ones.", show_default=False),
]
MaxLength = Annotated[int, typer.Option(min=8, max=131072, help="Longest pair in tokens.")]


@app.command("dequantise")
def dequantise(model: Model, out: Out, texts: Texts = None, max_length: MaxLength = 512) -> None:
    """Write the float32 model that a dynamically quantised one stands for: the reference for what is quantised."""
    _tell(make_dequantised(_files(model), out, _lists(texts), max_length), out, quantization="none", dtype="float32")


@app.command("fuse")
def fuse(
    model: Model,
    out: Out,
    texts: Texts = None,
    max_length: MaxLength = 512,
    masked: Annotated[
        bool, typer.Option("--masked", help="Keep the mask of padding, for batches; slower than without.")
    ] = False,
) -> None:
    """Rewrite a BERT-like model's graph, with the same weights, so that it runs faster on a CPU."""
    _tell(make_fused(_files(model), out, _lists(texts), max_length, masked=masked), out)


@app.command("static-int8")
def static_int8(
    model: Model,
    out: Out,
    texts: Annotated[
        Path, typer.Option(help="Your own pairs, to calibrate on and to compare: query, tab, document on a line.")
    ],
    max_length: MaxLength = 512,
    keep: Annotated[
        list[str] | None,
        typer.Option(help=f"Products that stay float32, by name; repeat it. [default: {' '.join(KEPT)}]"),
    ] = None,
) -> None:
    """Quantise to int8 with fixed scales: scores do not depend on batch mates. Needs VNNI-class instructions."""
    refuse_without_int8(cpu_instructions())
    made = make_static_int8(_files(model), out, read_lists(texts), max_length, KEPT if keep is None else keep)
    _tell(made, out, quantization="static-int8", dtype="int8")


def refuse_without_int8(instructions: frozenset[str] | None) -> None:
    """Raise ConfigError where a CPU has no instructions that make int8 faster than float32."""
    if not has_int8_instructions(instructions):
        raise ConfigError("weights: this CPU has no int8 dot product (VNNI, dotprod): static int8 would be slower here")


def _lists(texts: Path | None) -> Lists:
    return built_in_lists() if texts is None else read_lists(texts)


def _files(model: str) -> ModelFiles:
    side = parse_side("MODEL", model) if "#" in model else None
    if side is None:
        return find_model(Weights(folder=model))
    if not isinstance(side, StageSide):
        raise ConfigError("MODEL: name a folder, or RELEASE.yaml#small or #large")
    stages = load_release(named_release(side.path), os.environ).release.stages
    spec = stages.small if side.stage is StageName.SMALL else stages.large
    if not isinstance(spec, OnnxStage):
        raise ConfigError(f"MODEL: the {side.stage} stage is no cross-encoder inside the sidecar (adapter onnx)")
    return find_model(spec.weights)


def _tell(made: Made, out: Path, **declared: str) -> None:
    typer.echo(made.done)
    for name, apart in made.differences.items():
        typer.echo(f"against {name}: {_told(apart)}")
    for doubt in made.doubts:
        typer.echo(f"warning: {doubt}", err=True)
    typer.echo("\nfor the stage in a release:")
    for key, value in declared.items():
        typer.echo(f"  {key}: {value}")
    typer.echo(f"  weights:\n    folder: {out}\n    sha256:")
    for name, digest in made.sha256.items():
        typer.echo(f"      {name}: {digest}")
    typer.echo("\nThese are other weights to a release. Hold the stage against the one it replaces before it serves:")
    typer.echo("  cascade parity OLD.yaml#STAGE NEW.yaml#STAGE --dataset FOLDER")


def _told(apart: Difference) -> str:
    tau = "-" if apart.kendall is None else f"{apart.kendall:.4f}"
    overlap = "-" if apart.overlap is None else f"{apart.overlap:.3f}"
    return (
        f"{apart.pairs} pairs, greatest difference {apart.greatest:.6f}, mean {apart.mean:.6f}, "
        f"Kendall's tau {tau}, first ten in common {overlap}"
    )
