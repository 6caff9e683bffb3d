"""What each load level keeps of the quality, at which cost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import altair as alt

from cascade.replay.charts.chart import PAGE, Chart, Look, interval_of, rows_of, shown, where_known

__all__ = ["levels"]

_COLOUR: Final = "#2b7bd0"


def levels(report: Mapping[str, Any], look: Look = PAGE) -> Chart | None:
    """Return nDCG of every level against the share of pairs it sends, None where no level was replayed."""
    told = report.get("levels")
    if not told:
        return None
    rows = [
        {
            "name": level["name"],
            "share": level["large_share"],
            "pairs": level["large_pairs"],
            "small": level["small_pairs"],
            "value": level["ndcg"],
            **interval_of(level, "ndcg"),
        }
        for level in told
    ]
    y = alt.Y("name:N", title=None, sort=None)
    x = alt.X("value:Q", title="ndcg", scale=alt.Scale(zero=False, padding=14))
    base = alt.Chart().encode(y=y)
    bounds = base.mark_rule(strokeWidth=2, color=_COLOUR, opacity=0.55).encode(
        x=alt.X("low:Q", title="ndcg"), x2="high:Q"
    )
    tooltip = [
        alt.Tooltip("name:N", title="level"),
        alt.Tooltip("value:Q", title="ndcg", format=".4f"),
        alt.Tooltip("low:Q", title="from", format=".4f"),
        alt.Tooltip("high:Q", title="to", format=".4f"),
        alt.Tooltip("share:Q", title="share of pairs", format=".3f"),
        alt.Tooltip("small:Q", title="small pairs a query", format=".1f"),
    ]
    said = "format(datum.share, '.0%') + ' of the large pairs, ' + format(datum.small, '.0f') + ' small pairs a query'"
    layers = (
        *where_known(rows, bounds),
        base.mark_point(size=80, filled=True, opacity=1, color=_COLOUR).encode(x=x, tooltip=tooltip),
        base.mark_text(style="label", align="left", baseline="bottom", dy=-9)
        .transform_calculate(said=said)
        .encode(x=alt.value(6), text="said:N"),
    )
    return Chart(
        "levels",
        "Quality of every load level",
        "ndcg of every load level with its interval, and what it gives the stages to do.",
        rows_of(rows),
        {
            "name": "Level",
            "value": "ndcg",
            "low": "from",
            "high": "to",
            "share": "Share of large pairs",
            "pairs": "Large pairs",
            "small": "Small pairs",
        },
        shown(look, 52 * len(rows), *layers),
    )
