"""Draw the reliability of a calibration."""

from __future__ import annotations

from pathlib import Path

from cascade.calibration.artefact import CalibrationArtefact
from cascade.errors import ConfigError
from cascade.replay.charts.chart import PICTURE
from cascade.replay.charts.pictures import png, svg
from cascade.replay.charts.reliability import reliability

__all__ = ["draw_reliability"]

_FORMATS = {".png": png, ".svg": svg}


def draw_reliability(artefact: CalibrationArtefact, path: Path) -> None:
    """Write predicted against observed probability by cutoff, one panel a prefix, as PNG or SVG. Raises ConfigError."""
    draw = _FORMATS.get(path.suffix)
    if draw is None:
        raise ConfigError(f"--plot {path}: cannot be written: name a file that ends in {' or '.join(_FORMATS)}")
    rows = [row.model_dump() for row in artefact.reliability]
    panels = (
        reliability([row for row in rows if row["prefix"] == prefix], PICTURE, f"first {prefix} candidates")
        for prefix in sorted({row["prefix"] for row in rows})
    )
    title = f"{artefact.small.name} -> {artefact.large.name}: in the large stage's top c (cross-fitted)"
    drawn = draw([panel for panel in panels if panel is not None], title)
    try:
        path.write_bytes(drawn)
    except OSError as error:
        reason = type(error).__name__
    else:
        return
    raise ConfigError(f"--plot {path}: cannot be written: {reason}")
