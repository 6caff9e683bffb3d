"""Write Grafana's dashboards, in its classic JSON, from the tables of panels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson

from dashboards.gpu import GPU
from dashboards.overview import OVERVIEW
from dashboards.ranking import RANKING
from dashboards.stages import STAGES
from dashboards.table import Dashboard, Panel, Variable

__all__ = ["dashboards"]

_SCHEMA_VERSION: Final = 39
"""Of Grafana 11; later ones read it, and raise it as they save."""
_WIDE: Final = 24
_WIDTH: Final = 8
_HEIGHT: Final = 8
_DATASOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}


def dashboards() -> dict[str, bytes]:
    """Return each dashboard by the name of its file."""
    return {
        f"{one.name}.json": orjson.dumps(_dashboard(one), option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
        for one in (OVERVIEW, STAGES, RANKING, GPU)
    }


@dataclass(slots=True)
class _Grid:
    """Where the next panel goes: from left to right, and down."""

    x: int = 0
    y: int = 0

    def place(self) -> dict[str, int]:
        if self.x + _WIDTH > _WIDE:
            self.break_line()
        at = {"h": _HEIGHT, "w": _WIDTH, "x": self.x, "y": self.y}
        self.x += _WIDTH
        return at

    def break_line(self) -> None:
        if self.x:
            self.x, self.y = 0, self.y + _HEIGHT

    def row(self) -> dict[str, int]:
        self.break_line()
        at = {"h": 1, "w": _WIDE, "x": 0, "y": self.y}
        self.y += 1
        return at


def _dashboard(one: Dashboard) -> dict[str, Any]:
    grid = _Grid()
    panels: list[dict[str, Any]] = []
    for title, row in one.rows.items():
        panels.append(_row(title, len(panels) + 1, grid))
        panels += [_panel(panel, len(panels) + 1 + number, grid) for number, panel in enumerate(row)]
    return {
        "uid": f"cascade-{one.name}",
        "title": one.title,
        "description": one.what,
        "tags": ["cascade"],
        "schemaVersion": _SCHEMA_VERSION,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "timezone": "",
        "links": [_LINK],
        "annotations": {"list": []},
        "templating": {"list": [_SOURCE, *(_variable(variable) for variable in one.variables)]},
        "panels": panels,
    }


def _row(title: str, number: int, grid: _Grid) -> dict[str, Any]:
    return {"id": number, "type": "row", "title": title, "collapsed": False, "gridPos": grid.row(), "panels": []}


def _panel(panel: Panel, number: int, grid: _Grid) -> dict[str, Any]:
    defaults: dict[str, Any] = {
        "unit": panel.unit,
        "min": panel.least,
        "custom": {"fillOpacity": 10, "showPoints": "never"},
    }
    if panel.limits:
        defaults["thresholds"] = _thresholds(panel.limits)
        defaults["custom"]["thresholdsStyle"] = {"mode": "line"}
    return {
        "id": number,
        "type": "timeseries",
        "title": panel.title,
        "description": panel.what,
        "datasource": _DATASOURCE,
        "gridPos": grid.place(),
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": {
            "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
            "tooltip": {"mode": "multi", "sort": "desc"},
        },
        "targets": [
            {"refId": chr(ord("A") + place), "datasource": _DATASOURCE, "expr": expression, "legendFormat": legend}
            for place, (legend, expression) in enumerate(panel.series.items())
        ],
    }


def _thresholds(limits: Sequence[float]) -> dict[str, Any]:
    """Return green below the first limit, yellow above it, red above the last."""
    colours = ("yellow", "red")[-len(limits) :]
    steps = [{"color": colour, "value": limit} for colour, limit in zip(colours, limits, strict=True)]
    return {"mode": "absolute", "steps": [{"color": "green", "value": None}, *steps]}


def _variable(variable: Variable) -> dict[str, Any]:
    """Return a variable whose All stands for what its query finds: with a value of its own it would be all there is, whatever is chosen before it."""
    return {
        "name": variable.name,
        "label": variable.label,
        "type": "query",
        "datasource": _DATASOURCE,
        "query": {"query": variable.query, "refId": variable.name},
        "definition": variable.query,
        "multi": True,
        "includeAll": True,
        "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
        "refresh": 2,
        "sort": 1,
    }


_SOURCE: Final[Mapping[str, Any]] = {
    "name": "datasource",
    "label": "Prometheus",
    "type": "datasource",
    "query": "prometheus",
    "refresh": 1,
}
_LINK: Final[Mapping[str, Any]] = {
    "title": "cascade",
    "type": "dashboards",
    "tags": ["cascade"],
    "asDropdown": True,
    "includeVars": True,
    "keepTime": True,
}
