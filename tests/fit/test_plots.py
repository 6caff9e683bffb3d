"""Drawing the reliability."""

from __future__ import annotations

from pathlib import Path

import pytest

from cascade.calibration.artefact import CalibrationArtefact
from cascade.errors import ConfigError
from cascade.fit.plots import draw_reliability


@pytest.mark.parametrize(("name", "begins"), [("a.png", b"\x89PNG"), ("a.svg", b"<?xml")])
def test_a_plot_is_drawn(fitted: CalibrationArtefact, tmp_path: Path, name: str, begins: bytes) -> None:
    """In the format that the file's name asks for."""
    draw_reliability(fitted, tmp_path / name)
    assert (tmp_path / name).read_bytes().startswith(begins)


@pytest.mark.parametrize("name", ["absent/a.png", "a.docx"])
def test_a_file_that_cannot_be_written_is_told(fitted: CalibrationArtefact, tmp_path: Path, name: str) -> None:
    """A folder that is not there, and a format that nobody draws."""
    with pytest.raises(ConfigError, match=r"--plot .*: cannot be written: "):
        draw_reliability(fitted, tmp_path / name)
