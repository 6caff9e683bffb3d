"""``cascade release``."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated

import typer

from cascade.cli.options import ConfigFile, settings_from
from cascade.cli.release_diff import diff
from cascade.cli.rollout_words import plain
from cascade.rollout.activation import Refused
from cascade.rollout.bundle import build_bundle, load_bundle, sign_bundle
from cascade.rollout.load import offline
from cascade.rollout.show import description
from cascade.rollout.signing import ReleaseKeys, keys_in, make_keys, read_signing_key
from cascade.rollout.verify import verify as verify_release
from cascade.server.reading import nameable
from cascade.server.trying import tried
from cascade.telemetry.logs import configure_logging

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, help="Pack, sign, show, check and compare releases.")

_Out = Annotated[Path, typer.Option(help="Folder to make, or a file that ends in .tar.")]
_Key = typer.Option("--key", help="Private key in PEM, as cascade release keygen makes it.", show_default=False)
_Release = Annotated[Path, typer.Argument(help="A release in YAML, or a bundle: a folder or a .tar.")]


@app.command()
def build(
    release: _Release,
    out: _Out,
    key: Annotated[Path | None, _Key] = None,
) -> None:
    """Pack a release with the artefacts that it names, and with --key sign it.

    The same input makes the same bytes. A bundle is never changed.
    """
    loaded = build_bundle(release, out, os.environ, None if key is None else read_signing_key(key))
    signed = "" if key is None else ", signed"
    typer.echo(f"{out}: release {loaded.release.release}, {loaded.digest}{signed}")


@app.command()
def sign(
    bundle: Annotated[Path, typer.Argument(help="A bundle: a folder or a .tar.")],
    key: Annotated[Path, _Key],
    out: _Out,
) -> None:
    """Write a bundle with a signature of its digest, in place of any that it has. The bundle itself is not changed."""
    loaded = sign_bundle(bundle, out, os.environ, read_signing_key(key))
    typer.echo(f"{out}: release {loaded.release.release}, {loaded.digest}, signed")


@app.command()
def keygen(
    key: Annotated[Path, typer.Option("--key", help="File to make, of the private key.", show_default=False)],
    public: Annotated[Path, typer.Option("--public", help="File to make, of the public key.", show_default=False)],
) -> None:
    """Make a pair of keys of Ed25519, in PEM. No file is overwritten; the private key can be read by its owner alone."""
    number = make_keys(key, public)
    typer.echo(f"key {number}: {key} signs, {public} goes into release_keys_file")


@app.command()
def show(release: _Release) -> None:
    """Say in words what a release does and what its calibration was fitted on. Variables need not be set."""
    for line in description(load_bundle(release, offline(nameable(settings_from(None), os.environ)))):
        typer.echo(plain(line))


@app.command()
def verify(
    release: _Release,
    strict: Annotated[
        bool, typer.Option("--strict", help="Let no warning pass, and build the stages as an activation does.")
    ] = False,
    digest: Annotated[str | None, typer.Option(help="Digest that the release must have.", show_default=False)] = None,
    keys: Annotated[
        Path | None,
        typer.Option(
            "--keys",
            help="Public keys in PEM, one of which must have signed it; unset: those of settings.",
            show_default=False,
        ),
    ] = None,
    config: ConfigFile = None,
    probe: Annotated[
        bool,
        typer.Option(
            "--probe", help="Start it too, and ask its servers what an activation asks; variables must be set."
        ),
    ] = False,
) -> None:
    """Check a release, its artefacts and what they say of each other; without --probe no server is called.

    What a release may name, and the keys that may sign it, are those of the settings.
    Exit status: 0 it passes, 1 it does not (an error, or with --strict a warning), 2 it is no release.
    """
    settings = settings_from(config, release_keys_file=keys)
    environment, counted = nameable(settings, os.environ), keys_in(settings.release_keys_file)
    done = verify_release(release, environment, digest, counted(), load=strict)
    for finding in done.findings:
        typer.echo(plain(f"{finding.severity}: {finding.what}"))
    passes = done.passes(strict=strict)
    if passes and probe:
        passes = _tried(release, counted, environment, strict=strict)
    word = "passes" if passes else "does not pass"
    typer.echo(f"release {done.loaded.release.release}, {done.loaded.digest}: {word}{' --strict' if strict else ''}")
    if not passes:
        raise typer.Exit(1)


def _tried(
    release: Path, keys: Callable[[], ReleaseKeys | None], environment: Mapping[str, str], *, strict: bool
) -> bool:
    """Activate it for nobody, and tell at which step it is refused."""
    configure_logging("error", sys.stderr.buffer)
    try:
        asyncio.run(tried(release, keys, environment, lenient=not strict))
    except Refused as refused:
        for why in refused.why:
            typer.echo(plain(f"error: {refused.step}: {why}"))
        return False
    return True


app.command()(diff)
