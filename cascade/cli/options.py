"""Options that several commands take, and how they become settings."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from cascade.errors import ConfigError
from cascade.server.settings import Settings, load_settings

__all__ = ["ConfigFile", "ReleaseFile", "channels_of", "condition_of", "settings_from"]

ReleaseFile = Annotated[
    str | None,
    typer.Option(
        "--release",
        help="Release in YAML, or a bundle: a folder, a .tar or the http(s) address of one. Unset means the packaged "
        "default.",
        show_default=False,
    ),
]
ConfigFile = Annotated[Path | None, typer.Option("--config", help="Settings file in YAML.", show_default=False)]


def settings_from(config: Path | None, **flags: Any) -> Settings:
    """Return settings by flag, then environment, then file, then default."""
    return load_settings(flags, file=config)


def channels_of(listed: str) -> list[str]:
    """Return the names of --first-stage. Raises ConfigError where one is named twice."""
    channels = [name.strip() for name in listed.split(",") if name.strip()]
    if len(set(channels)) < len(channels):
        raise ConfigError("--first-stage: a channel is named twice")
    return channels


def condition_of(written: str) -> tuple[str, str]:
    """Return the column and the value of one --where. Raises ConfigError."""
    column, equals, value = written.partition("=")
    if not equals or not column:
        raise ConfigError("--where: write COLUMN=VALUE")
    return column, value
