"""Options that several commands take, and how they become settings."""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryFile
from typing import Annotated, Any

import typer

from cascade.errors import ConfigError
from cascade.rollout.whole_file import write_whole
from cascade.server.settings import Settings, load_settings
from cascade.telemetry.folders import why_not

__all__ = ["ConfigFile", "ReleaseFile", "channels_of", "check_out", "condition_of", "settings_from", "write_out"]

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


def check_out(out: Path) -> None:
    """Raise ConfigError where a file cannot be written, before the work is done whose result it is."""
    folder = out.absolute().parent
    if not folder.is_dir():
        raise ConfigError(f"--out {out}: its folder is not there")
    if out.exists() and not out.is_file():
        raise ConfigError(f"--out {out}: it is no file")
    try:
        with TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ConfigError(f"--out {out}: cannot be written: {why_not(error)}") from None


def write_out(out: Path, data: bytes) -> None:
    """Write a result whole or not at all, with the mode that a new file has here. Raises ConfigError."""
    write_whole(out, data)
    mask = os.umask(0)
    os.umask(mask)
    out.chmod(0o666 & ~mask)


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
