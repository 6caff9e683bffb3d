"""Put a report into a page of its own: its data, its charts, its style and its scripts in one file."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any, Final

import orjson
import vl_convert

from cascade.errors import ConfigError
from cascade.replay.charts import curves, depth_sweep
from cascade.replay.charts.ceiling import ceiling
from cascade.replay.charts.chart import Chart
from cascade.replay.charts.levels import levels
from cascade.replay.charts.regret import regret
from cascade.replay.charts.reliability import reliability
from cascade.replay.charts.theme import DARK, LIGHT

__all__ = ["page", "write_page"]

_SCRIPTS: Final = (
    "dom.js", "numbers.js", "table.js", "charts.js", "overview.js", "quality.js", "evidence.js", "decisions.js",
    "economics.js", "queries.js", "page.js",
)  # fmt: skip
_POLICY: Final = "default-src 'none'; script-src {scripts}; style-src {style}; base-uri 'none'; form-action 'none'"
"""Nothing is loaded, and nothing runs but these very scripts: no eval, no handler in an attribute."""


def write_page(report: Mapping[str, Any], path: Path) -> None:
    """Write the page of a report. Raises ConfigError."""
    written = page(report).encode()
    try:
        path.write_bytes(written)
    except OSError as error:
        raise ConfigError(f"--html {path}: cannot be written: {type(error).__name__}") from None


def page(report: Mapping[str, Any]) -> str:
    """Return the HTML of a report, which is all that it shows."""
    style = _read("page.css")
    bundle, script = _bundle(), _strict("\n".join(map(_read, _SCRIPTS)))
    policy = _POLICY.format(scripts=f"{_hash(bundle)} {_hash(script)}", style=_hash(style))
    return Template(_read("page.html")).substitute(
        policy=policy,
        style=style,
        report=_data(report),
        charts=_data({"charts": [*map(_plain, _charts(report))], "themes": {"light": LIGHT, "dark": DARK}}),
        bundle=bundle,
        script=script,
    )


def _charts(report: Mapping[str, Any]) -> list[Chart]:
    """Return the charts for which the report has rows."""
    made = [curves.recovered(report), curves.absolute(report)]
    made += [regret(report)] if "regret" in report else []
    made += [ceiling(report)] if "ceiling" in report else []
    if "depth_sweep" in report:
        made += [depth_sweep.candidate_recall(report), depth_sweep.quality(report), depth_sweep.milliseconds(report)]
    made += [levels(report)]
    made += [reliability(report["reliability"]["rows"])] if "reliability" in report else []
    return [chart for chart in made if chart is not None]


def _plain(chart: Chart) -> dict[str, Any]:
    return {
        "name": chart.name,
        "title": chart.title,
        "says": chart.says,
        "columns": chart.columns,
        "series": chart.series,
        "spec": chart.spec(),
        "rows": chart.rows,
    }


def _data(value: Any) -> str:
    """Return JSON in which nothing can end the element that it stands in."""
    written = orjson.dumps(value).decode()
    return written.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


@cache
def _read(name: str) -> str:
    return (files(__package__) / name).read_text(encoding="utf-8")


@cache
def _bundle() -> str:
    """Return Vega, Vega-Lite and Vega-Embed as one script."""
    return _strict(str(vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")))


def _strict(script: str) -> str:
    """Return a script in which nothing can end its element."""
    return script.replace("</script", "<\\/script").replace("<!--", "<\\!--")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
