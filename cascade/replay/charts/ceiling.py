"""How many relevant documents the small order's head holds: what no choice of a head can pass."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import altair as alt

from cascade.replay.charts.chart import PAGE, Chart, Look, rows_of, shown, where_known

__all__ = ["ceiling"]

_COLOUR: Final = "#2b7bd0"


def ceiling(report: Mapping[str, Any], look: Look = PAGE) -> Chart | None:
    """Return the recall of the small order's first m, and that of all candidates; None where nothing is judged."""
    told = report["ceiling"]
    if not told["recall_at"]:
        return None
    intervals = told["intervals"]["recall_at"]
    rows = []
    for (head, recall), bounds in zip(told["recall_at"], intervals, strict=True):
        low, high = bounds or (None, None)
        rows.append({"head": head, "recall": recall, "low": low, "high": high, "all": told["candidates"]})
    axis = alt.Axis(values=[row["head"] for row in rows], format="d")
    x = alt.X(
        "head:Q", title="m: first candidates of the small order", scale=alt.Scale(type="log", nice=False), axis=axis
    )
    y = alt.Y("recall:Q", title="Recall of the relevant documents", scale=alt.Scale(domain=[0, 1]))
    base = alt.Chart().encode(x=x)
    tooltip = [
        alt.Tooltip("head:Q", title="first m"),
        alt.Tooltip("recall:Q", title="recall", format=".4f"),
        alt.Tooltip("low:Q", title="from", format=".4f"),
        alt.Tooltip("high:Q", title="to", format=".4f"),
        alt.Tooltip("all:Q", title="of all candidates", format=".4f"),
    ]
    layers = (
        base.mark_line(style="reference").encode(y="all:Q"),
        *where_known(rows, base.mark_area(opacity=0.14, color=_COLOUR).encode(y="low:Q", y2="high:Q")),
        base.mark_line(strokeWidth=2, color=_COLOUR).encode(y=y),
        base.mark_point(size=50, filled=True, opacity=1, color=_COLOUR).encode(y=y, tooltip=tooltip),
    )
    return Chart(
        "ceiling",
        "Ceiling: recall of the small order's first m",
        "Recall of the relevant documents by the first m of the small order; the dotted line is that of all candidates.",
        rows_of(rows),
        {"head": "First m", "recall": "Recall", "low": "from", "high": "to", "all": "Of all candidates"},
        shown(look, 260, *layers),
    )
