"""Find what ships with the package: beside the code, or in a checkout at its top."""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Literal

__all__ = ["supplied_folder"]


def supplied_folder(name: Literal["policies", "calibration"]) -> Path:
    """Return ``cascade/_<name>`` of an installed package, else the folder of a checkout."""
    packaged = Path(str(resources.files("cascade"))) / f"_{name}"
    return packaged if packaged.is_dir() else Path(__file__).parents[2] / name
