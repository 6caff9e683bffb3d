"""``cascade config example``."""

from __future__ import annotations

from typing import Annotated

import typer

from cascade.errors import ConfigError
from cascade.rollout.load import packaged_releases

__all__ = ["example"]


def example(
    name: Annotated[str, typer.Argument(help="Name of a packaged release; default is the one served.")] = "default",
) -> None:
    """Print a release that ships with the package, to change and to keep as your own."""
    releases = packaged_releases()
    if name not in releases:
        raise ConfigError(f"no example {name!r}; there are {', '.join(releases)}")
    typer.echo(releases[name].read_text(encoding="utf-8"), nl=False)
