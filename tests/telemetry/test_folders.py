"""What the disk keeps of names."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cascade.telemetry.folders import keep_names


def test_a_file_system_that_cannot_be_told_to_keep_names_is_no_fault() -> None:
    """That of processes is one, as some of networks are: what was written there stands."""
    folder = Path("/proc/self")
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with pytest.raises(OSError, match="Invalid argument"):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)
    keep_names(folder)


def test_a_folder_that_is_gone_is_one(tmp_path: Path) -> None:
    """It says so."""
    with pytest.raises(FileNotFoundError):
        keep_names(tmp_path / "none")
