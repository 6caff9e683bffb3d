"""Quality against cost: each policy's curve, with intervals where the report has them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import altair as alt

from cascade.replay.charts.chart import PAGE, Chart, Look, Row, interval_of, rows_of, series_colour, shown, where_known
from cascade.replay.charts.theme import POLICIES, dashed

__all__ = ["absolute", "recovered"]

_COST: Final = "Pairs at the large stage, share of always-large"
_RECOVERED: Final = "Share of the difference recovered"
_APART: Final = 0.007
"""By how much what lies at the same place is drawn apart, on an axis of length 1."""
_SETTINGS: Final = {"policy": "price", **dict.fromkeys(("static", "static-fused", "static-final"), "top")}
_HEADINGS: Final = {
    "series": "Policy",
    "what": "Point",
    "share": "Share of pairs",
    "value": "Value",
    "low": "from",
    "high": "to",
}


def recovered(report: Mapping[str, Any], look: Look = PAGE) -> Chart | None:
    """Return what share of Q_large - Q_small each policy recovers; None where no curve has a share to tell.

    Intervals are of the cost at which a level is recovered, so that they lie along the cost. Those of several
    policies are drawn a little apart. That of chance is none.
    """
    curves = {name: points for name, points in report["curves"].items() if points is not None}
    if not curves:
        return None
    rows = [*_lines(curves, report), *_levels(report, curves)]
    levels = alt.Chart().transform_filter("datum.kind == 'level'").encode(color=_colour(look, curves))
    bounds = levels.mark_rule(strokeWidth=2, opacity=0.55).encode(x="low:Q", x2="high:Q", y="place:Q")
    layers = (
        *_curve(_RECOVERED, look, curves, zero=True),
        *where_known(rows, bounds),
        levels.mark_point(size=46, filled=True, opacity=1).encode(
            x="share:Q", y="value:Q", tooltip=_tooltip(_RECOVERED, "cost from", "cost to")
        ),
    )
    return Chart(
        "recovered",
        "Share recovered against cost",
        f"Curves of {', '.join(curves)}: the share of the difference between the small and the large stage that is "
        "recovered, against the share of pairs that go to the large stage. Up and to the left is better.",
        rows_of(rows),
        {**_HEADINGS, "value": "Share recovered", "low": "Cost from", "high": "Cost to"},
        shown(look, 380, *layers),
        _colours(curves),
    )


def absolute(report: Mapping[str, Any], look: Look = PAGE) -> Chart:
    """Return the quality of each policy at each cost, with intervals where it is reported."""
    curves, conditions = report["absolute_curves"], report["conditions"]
    name = f"{conditions['metric']}@{conditions['k']}" if conditions["metric"] != "mrr" else "mrr"
    name = f"silver {name}" if conditions["judgements"] == "silver" else name
    rows = [*_lines(curves, report), *_reported(report)]
    names = {**dict.fromkeys(curves), **dict.fromkeys(each["name"] for each in report["policies"])}
    points = alt.Chart().transform_filter("datum.kind == 'reported'").encode(color=_colour(look, names))
    bounds = points.mark_rule(strokeWidth=2, opacity=0.55).encode(x="place:Q", y="low:Q", y2="high:Q")
    layers = (
        *_curve(name, look, names, zero=False),
        *where_known(rows, bounds),
        points.mark_point(size=60, filled=True, opacity=1).encode(
            x="share:Q",
            y=alt.Y("value:Q", scale=alt.Scale(zero=False)),
            tooltip=_tooltip(name, "from", "to"),
        ),
    )
    return Chart(
        "absolute",
        "Quality against cost",
        f"Curves of {', '.join(curves)}: {name} against the share of pairs that go to the large stage, and each policy "
        "at its reported setting, with its interval.",
        rows_of(rows),
        {**_HEADINGS, "value": name},
        shown(look, 380, *layers),
        _colours(names),
    )


def _colours(names: Mapping[str, Any]) -> dict[str, str]:
    return {name: colour for name, colour in POLICIES.items() if name in names}


def _colour(look: Look, names: Mapping[str, Any]) -> alt.Color:
    return series_colour(_colours(names), "Policy", look)


def _tooltip(value: str, low: str, high: str) -> list[alt.Tooltip]:
    return [
        alt.Tooltip("series:N", title="policy"),
        alt.Tooltip("what:N", title="setting"),
        alt.Tooltip("share:Q", title="share of pairs", format=".3f"),
        alt.Tooltip("pairs:Q", title="pairs a query", format=".1f"),
        alt.Tooltip("value:Q", title=value, format=".4f"),
        alt.Tooltip("low:Q", title=low, format=".4f"),
        alt.Tooltip("high:Q", title=high, format=".4f"),
    ]


def _curve(title: str, look: Look, names: Mapping[str, Any], *, zero: bool) -> Iterator[alt.Chart]:
    """Yield each policy's line, and a small mark at every setting."""
    line = alt.Chart().transform_filter("datum.kind == 'curve'")
    x = alt.X("share:Q", title=_COST, scale=alt.Scale(domain=[0, 1]))
    y = alt.Y("value:Q", title=title, scale=alt.Scale(zero=zero))
    dash = alt.condition("datum.bound", alt.value([5, 4]), alt.value([1, 0]))
    yield line.mark_line(strokeWidth=2).encode(x=x, y=y, color=_colour(look, names), strokeDash=dash, order="at:Q")
    tooltip = _tooltip(title, "from", "to")[:5]
    yield line.mark_point(size=22, filled=True, opacity=0.5).encode(
        x=x, y=y, color=_colour(look, names), tooltip=tooltip
    )


def _lines(curves: Mapping[str, Any], report: Mapping[str, Any]) -> Iterator[Row]:
    always = _always(report)
    settings = report["curve_settings"]
    for name, points in curves.items():
        for at, (share, value) in enumerate(points):
            yield {
                "kind": "curve", "series": name, "what": _setting(name, settings[name][at]), "at": at,
                "share": share, "pairs": share * always, "value": value, "bound": dashed(name),
            }  # fmt: skip


def _always(report: Mapping[str, Any]) -> float:
    """Return how many pairs of a query always-large scores."""
    return float(next(each for each in report["policies"] if each["name"] == "large")["large_pairs"])


def _setting(name: str, setting: float | None) -> str:
    """Return a setting in words: the number that a static policy sends, or the price that a policy goes by."""
    if setting is None:
        return "always small"
    return f"{_SETTINGS.get(name, 'setting')} {setting:.4g}"


def _levels(report: Mapping[str, Any], curves: Mapping[str, Any]) -> Iterator[Row]:
    names, always = [name for name in curves if name != "random"], _always(report)
    for name, apart in zip(names, _apart(len(names)), strict=True):
        for level, cost in report["cost_at_recovered"][name].items():
            if cost is not None:
                bounds = interval_of(report, "cost_at_recovered", name, level)
                at = {"share": cost, "pairs": cost * always, "value": float(level), "place": float(level) + apart}
                yield {"kind": "level", "series": name, "what": f"{level} recovered", **at, **bounds}


def _reported(report: Mapping[str, Any]) -> Iterator[Row]:
    metric, policies = report["conditions"]["metric"], report["policies"]
    for policy, apart in zip(policies, _apart(len(policies)), strict=True):
        share = policy["large_share"]
        yield {
            "kind": "reported",
            "series": policy["name"],
            "what": policy["chosen"],
            "share": share,
            "place": share + apart if 0.0 < share < 1.0 else share,
            "pairs": policy["large_pairs"],
            "value": policy[metric],
            **interval_of(policy, metric),
        }


def _apart(count: int) -> list[float]:
    return [(at - (count - 1) / 2) * _APART for at in range(count)]
