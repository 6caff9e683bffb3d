"""``cascade serve``."""

from __future__ import annotations

from typing import Annotated

import typer

from cascade.cli.options import ConfigFile, ReleaseFile, settings_from
from cascade.server import lifecycle

__all__ = ["serve"]


def serve(
    release: ReleaseFile = None,
    host: Annotated[str | None, typer.Option(help="Address of the public listener.")] = None,
    port: Annotated[int | None, typer.Option(help="Port of the public listener; 0 picks a free one.")] = None,
    admin_host: Annotated[str | None, typer.Option(help="Address of the admin listener.")] = None,
    admin_port: Annotated[int | None, typer.Option(help="Port of the admin listener; 0 picks a free one.")] = None,
    level: Annotated[
        str | None, typer.Option(help="Load level of the release to pin; unset means that load steps through them.")
    ] = None,
    log_level: Annotated[str | None, typer.Option(help="debug, info, warning or error.")] = None,
    config: ConfigFile = None,
) -> None:
    """Serve rerank requests until SIGTERM or SIGINT."""
    lifecycle.serve(
        settings_from(
            config,
            release=release,
            host=host,
            port=port,
            admin_host=admin_host,
            admin_port=admin_port,
            level=level,
            log_level=log_level,
        )
    )
