"""``cascade keys``."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Annotated

import typer
from pydantic import ValidationError

from cascade.errors import ConfigError
from cascade.server.key_file import KeyEntry, parse_keys
from cascade.server.keys import Right, hash_of

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, help="Make API keys, and check a file of them.")


@app.command()
def new(
    name: Annotated[str, typer.Argument(help="What the key is called in the file.")],
    right: Annotated[
        list[Right] | None,
        typer.Option(help="What it allows; repeat it for several. Unset: rerank alone.", show_default=False),
    ] = None,
) -> None:
    """Print a new key on stderr, once, and its entry for the file of keys on stdout. Nothing is kept."""
    key = secrets.token_urlsafe(32)
    rights = tuple(dict.fromkeys(right or ())) or None
    try:
        entry = KeyEntry(name=name, sha256=hash_of(key).hex(), rights=rights)
    except ValidationError:
        raise ConfigError("the name of a key: 1 to 64 letters, digits, '.', '_' and '-'") from None
    typer.echo(key, err=True)
    # quoted, since YAML reads a bare 5 or null as no text
    typer.echo(f'  - name: "{entry.name}"\n    sha256: "{entry.sha256}"')
    if rights:
        typer.echo(f"    rights: [{', '.join(rights)}]")


@app.command()
def check(file: Annotated[Path, typer.Argument(help="File of keys, in YAML or JSON.")]) -> None:
    """Check a file of keys; print how many it has, or what is wrong."""
    try:
        ring = parse_keys(file)
    except ConfigError as error:
        raise ConfigError(f"{file}: {error}") from None
    typer.echo(f"valid; keys: {len(ring)}")
