"""Draw the reliability of a calibration."""

from __future__ import annotations

from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from cascade.calibration.artefact import CalibrationArtefact
from cascade.calibration.gain import CUTOFFS
from cascade.errors import ConfigError

__all__ = ["draw_reliability"]


def draw_reliability(artefact: CalibrationArtefact, path: Path) -> None:
    """Write predicted against observed probability by cutoff, one panel a prefix. Raises ConfigError."""
    depths = sorted({row.prefix for row in artefact.reliability})
    figure = Figure(figsize=(4 * len(depths), 4), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(1, len(depths), squeeze=False)[0]
    for panel, depth in zip(panels, depths, strict=True):
        panel.plot([0, 1], [0, 1], color="grey", linewidth=0.8)
        for cutoff in CUTOFFS:
            for row in artefact.reliability:
                if (row.prefix, row.query_class, row.cutoff) == (depth, "all", cutoff):
                    predicted = [b[1] for b in row.bins]
                    observed = [b[2] for b in row.bins]
                    label = f"top {cutoff}: ECE {row.ece:.4f}, floor {row.ece_floor:.4f}"
                    panel.plot(predicted, observed, marker="o", markersize=3, label=label)
        panel.set_title(f"first {depth} candidates")
        panel.set_xlabel("predicted")
        panel.set_ylabel("observed")
        panel.legend(fontsize=7)
    figure.suptitle(f"{artefact.small.name} -> {artefact.large.name}: in the large stage's top c (cross-fitted)")
    try:
        figure.savefig(path, dpi=120, metadata={"Software": None} if path.suffix == ".png" else None)
    except (OSError, ValueError) as error:
        reason = type(error).__name__
    else:
        return
    raise ConfigError(f"--plot {path}: cannot be written: {reason}")
