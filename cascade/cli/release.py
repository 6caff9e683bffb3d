"""``cascade release``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from cascade.rollout.bundle import build_bundle, load_bundle
from cascade.rollout.diff import differences
from cascade.rollout.load import offline
from cascade.rollout.show import description
from cascade.rollout.verify import verify as verify_release

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, help="Pack, show, check and compare releases.")

_Release = Annotated[Path, typer.Argument(help="A release in YAML, or a bundle: a folder or a .tar.")]


@app.command()
def build(
    release: _Release,
    out: Annotated[Path, typer.Option(help="Folder to make, or a file that ends in .tar.")],
) -> None:
    """Pack a release with the artefacts that it names; the same input makes the same bytes. A bundle is never changed."""
    loaded = build_bundle(release, out, os.environ)
    typer.echo(f"{out}: release {loaded.release.release}, {loaded.digest}")


@app.command()
def show(release: _Release) -> None:
    """Say in words what a release does and what its calibration was fitted on. Variables need not be set."""
    for line in description(load_bundle(release, offline(os.environ))):
        typer.echo(line)


@app.command()
def verify(
    release: _Release,
    strict: Annotated[bool, typer.Option("--strict", help="Let no warning pass.")] = False,
    digest: Annotated[str | None, typer.Option(help="Digest that the release must have.", show_default=False)] = None,
) -> None:
    """Check a release, its artefacts and what they say of each other, without calling a server.

    Exit status: 0 it passes, 1 it does not (an error, or with --strict a warning), 2 it is no release.
    """
    done = verify_release(release, os.environ, digest)
    for finding in done.findings:
        typer.echo(f"{finding.severity}: {finding.what}")
    passes = done.passes(strict=strict)
    word = "passes" if passes else "does not pass"
    typer.echo(f"release {done.loaded.release.release}, {done.loaded.digest}: {word}{' --strict' if strict else ''}")
    if not passes:
        raise typer.Exit(1)


@app.command()
def diff(one: _Release, other: _Release) -> None:
    """Say what changes for traffic from one release to another.

    Exit status: 0 nothing does, 1 something does, 2 one of them is no release.
    """
    bundles = [load_bundle(path, offline(os.environ)) for path in (one, other)]
    for mark, bundle in zip("-+", bundles, strict=True):
        loaded = bundle.loaded
        typer.echo(f"{mark} {loaded.release.release}, release {loaded.digest}, policy {loaded.policy_digest}")
    lines = differences(*bundles)
    for line in lines or ["nothing changes for traffic"]:
        typer.echo(line)
    if lines:
        raise typer.Exit(1)
