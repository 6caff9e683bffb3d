"""Pictures of charts: PNGs of a report's main ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import vl_convert

from cascade.errors import ConfigError
from cascade.replay.charts import curves, depth_sweep
from cascade.replay.charts.chart import PICTURE, Chart
from cascade.replay.charts.regret import regret
from cascade.replay.charts.reliability import reliability
from cascade.replay.charts.theme import LIGHT

__all__ = ["FILES", "png", "svg", "write_pngs"]

FILES: Final = ("curves.png", "regret.png", "reliability.png", "depth-sweep.png")
_SCALE: Final = 2.0


def write_pngs(report: Mapping[str, Any], folder: Path) -> list[str]:
    """Write the charts into ``folder``, under names that never change; return the names written.

    What the report cannot fill is not drawn, and one that an earlier run left there is removed. Raises ConfigError.
    """
    drawn: dict[str, list[Chart | None]] = {
        "curves.png": [curves.recovered(report, PICTURE), curves.absolute(report, PICTURE)],
        "regret.png": [regret(report, PICTURE)],
        "reliability.png": [reliability(report["reliability"]["rows"], PICTURE)],
        "depth-sweep.png": [
            each(report, PICTURE)
            for each in (depth_sweep.candidate_recall, depth_sweep.quality, depth_sweep.milliseconds)
        ],
    }
    written = []
    try:
        folder.mkdir(exist_ok=True)
        for name in FILES:
            charts = [chart for chart in drawn[name] if chart is not None]
            if charts:
                (folder / name).write_bytes(png(charts))
                written.append(name)
            else:
                (folder / name).unlink(missing_ok=True)
    except OSError as error:
        raise ConfigError(f"--png {folder}: cannot be written: {type(error).__name__}") from None
    return written


def png(charts: Sequence[Chart], title: str = "") -> bytes:
    """Return charts side by side as a PNG on white, at twice their size."""
    return bytes(vl_convert.vegalite_to_png(_side_by_side(charts, title), scale=_SCALE))


def svg(charts: Sequence[Chart], title: str = "") -> bytes:
    """Return charts side by side as an SVG on white."""
    return str(vl_convert.vegalite_to_svg(_side_by_side(charts, title))).encode()


def _side_by_side(charts: Sequence[Chart], title: str) -> dict[str, Any]:
    panels = [{**chart.spec(), "data": {"values": [*chart.rows]}, "title": chart.title} for chart in charts]
    drawn = {"hconcat": panels, "spacing": 36, "resolve": {"scale": {"color": "independent"}}, "config": LIGHT}
    return {**drawn, "padding": 12, **({"title": title} if title else {})}
