"""Options that several commands take, and how they become settings."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from cascade.server.settings import Settings, load_settings

__all__ = ["ConfigFile", "ReleaseFile", "settings_from"]

ReleaseFile = Annotated[
    Path | None, typer.Option("--release", help="Release file; unset means the packaged default.", show_default=False)
]
ConfigFile = Annotated[Path | None, typer.Option("--config", help="Settings file in YAML.", show_default=False)]


def settings_from(config: Path | None, **flags: Any) -> Settings:
    """Return settings by flag, then environment, then file, then default."""
    return load_settings(flags, file=config)
