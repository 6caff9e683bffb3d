"""Drawing the reliability."""

from __future__ import annotations

from pathlib import Path

import pytest

from cascade.calibration.artefact import CalibrationArtefact
from cascade.errors import ConfigError
from cascade.fit.plots import draw_reliability


@pytest.mark.parametrize(("name", "begins"), [("a.png", b"\x89PNG"), ("a.svg", b"<svg")])
def test_a_plot_is_drawn(fitted: CalibrationArtefact, tmp_path: Path, name: str, begins: bytes) -> None:
    """In the format that the file's name asks for."""
    draw_reliability(fitted, tmp_path / name)
    assert (tmp_path / name).read_bytes().startswith(begins)


def test_a_plot_has_a_panel_for_each_prefix(fitted: CalibrationArtefact, tmp_path: Path) -> None:
    """Each names its cutoffs and how far they are off."""
    draw_reliability(fitted, tmp_path / "a.svg")
    drawn = (tmp_path / "a.svg").read_text(encoding="utf-8")
    for row in fitted.reliability:
        if row.query_class == "all":
            assert f"first {row.prefix} candidates" in drawn
            assert f"in the top {row.cutoff}: ECE {row.ece:.4f}, floor {row.ece_floor:.4f}" in drawn


@pytest.mark.parametrize(
    ("name", "reason"), [("absent/a.png", "FileNotFoundError"), ("a.docx", "name a file that ends in .png or .svg")]
)
def test_a_file_that_cannot_be_written_is_told(
    fitted: CalibrationArtefact, tmp_path: Path, name: str, reason: str
) -> None:
    """A folder that is not there, and a format that nobody draws."""
    with pytest.raises(ConfigError, match=f"--plot .*: cannot be written: {reason}"):
        draw_reliability(fitted, tmp_path / name)
