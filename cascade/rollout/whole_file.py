"""Write a file so that whoever reads it finds all of it, before or after, whenever the process ends."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Final

from cascade.errors import ConfigError
from cascade.telemetry.folders import keep_names, why_not

__all__ = ["ASIDE", "write_whole"]

ASIDE: Final = ".aside-"
"""How names of files begin that are being written."""


def write_whole(path: Path, data: bytes) -> None:
    """Write aside, to the disk, then move into place in one step. Raises ConfigError naming the file."""
    try:
        handle, name = tempfile.mkstemp(prefix=ASIDE, dir=path.parent)
        aside = Path(name)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            aside.replace(path)
        finally:
            aside.unlink(missing_ok=True)
        keep_names(path.parent)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {why_not(error)}") from None
