"""Read a folder that a mount swaps as one in the state of one moment."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

__all__ = ["SWAPPED", "mounted"]

SWAPPED: Final = "..data"
"""The link by which Kubernetes mounts a ConfigMap or a Secret: it leads to a folder of its own for each state, and is
renamed in one step. What is beside it leads through it."""


def mounted(folder: Path) -> Path:
    """Return the folder of the state that a mounted folder has now, else the folder itself.

    It stands while it is read, or is gone at once: files of two states are never taken for one. Links that lead round
    are left to who opens what is behind them.
    """
    link = folder / SWAPPED
    return Path(os.path.realpath(link)) if link.is_symlink() else folder
