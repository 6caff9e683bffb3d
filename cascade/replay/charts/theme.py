"""Colours of the charts, on white and on black."""

from __future__ import annotations

from typing import Any, Final

__all__ = ["DARK", "LIGHT", "PARTS", "POLICIES", "STAGES", "dashed"]

POLICIES: Final = {
    "policy": "#2b7bd0",
    "static": "#d55e00",
    "static-fused": "#00936b",
    "static-final": "#c0589b",
    "oracle": "#8f7500",
    "random": "#7d7d7d",
    "first-stage": "#a0694f",
    "small": "#9467bd",
    "large": "#c44e52",
}
"""A colour for each policy, at 3:1 or more against both backgrounds (WCAG 2.1, 1.4.11)."""

STAGES: Final = {name: POLICIES[name] for name in ("small", "large", "policy")}

PARTS: Final = {
    "missed escalation": "#d55e00",
    "wasted escalation": "#8f7500",
    "wrong depth": "#2b7bd0",
    "wrong cluster": "#00936b",
    "false exclusion": "#c0589b",
    "other": "#7d7d7d",
}
"""A colour for each part of the regret."""

_BOUNDS: Final = frozenset({"oracle", "random"})


def dashed(name: str) -> bool:
    """Tell whether a policy is a bound that nobody can serve, or chance: it is drawn dashed."""
    return name in _BOUNDS


def _config(ink: str, soft: str, grid: str, background: str | None) -> dict[str, Any]:
    return {
        "background": background,
        "font": "system-ui, 'Segoe UI', 'Liberation Sans', 'Noto Sans', sans-serif",
        "view": {"stroke": None},
        "axis": {
            "labelColor": soft,
            "titleColor": ink,
            "gridColor": grid,
            "domainColor": soft,
            "tickColor": soft,
            "labelFontSize": 12,
            "titleFontSize": 12,
            "titleFontWeight": "normal",
            "labelLimit": 160,
        },
        "legend": {"labelColor": ink, "titleColor": ink, "labelFontSize": 12},
        "title": {"color": ink, "fontSize": 13, "anchor": "start", "fontWeight": 600},
        "style": {
            "reference": {"color": soft, "strokeWidth": 1.2, "strokeDash": [2, 3]},
            "interval": {"color": ink, "strokeWidth": 1.2},
            "label": {"color": soft, "fontSize": 12},
        },
    }


LIGHT: Final = _config("#1b1f24", "#57606a", "#e4e7eb", "#ffffff")
DARK: Final = _config("#e8eaed", "#a4acb6", "#30363d", None)
