"""Whether predicted probabilities come true: bins against the diagonal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import altair as alt

from cascade.replay.charts.chart import PAGE, Chart, Look, Row, rows_of, series_colour, shown

__all__ = ["reliability"]

_COLOURS: Final = ("#2b7bd0", "#d55e00", "#00936b", "#c0589b", "#8f7500", "#7d7d7d")
_ALL: Final = "all"


def reliability(told: Sequence[Mapping[str, Any]], look: Look = PAGE, title: str = "Reliability") -> Chart | None:
    """Return bins of equal size by cutoff, of all classes together; None where there are no bins.

    Axes are of square roots: most candidates have a p near 0.
    """
    drawn_rows = [row for row in told if row["query_class"] == _ALL and row["bins"]]
    if not drawn_rows:
        return None
    series = {_name(row, look): colour for row, colour in zip(drawn_rows, _COLOURS, strict=False)}
    scale = alt.Scale(type="sqrt", domain=[0, 1], nice=False)
    ticks = alt.Axis(values=[0, 0.01, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1], labelOverlap=True, format="~g")
    x = alt.X("predicted:Q", title="Predicted probability", scale=scale, axis=ticks)
    y = alt.Y("observed:Q", title="Share observed", scale=scale, axis=ticks)
    lines = alt.Chart().encode(x=x, y=y, color=series_colour(series, "Cutoff", look, 2))
    layers = (
        alt.Chart()
        .transform_aggregate(rows="count()")
        .mark_rule(style="reference")
        .encode(x=alt.XDatum(0), y=alt.YDatum(0), x2=alt.X2Datum(1), y2=alt.Y2Datum(1)),
        lines.mark_line(strokeWidth=1.6).encode(order="at:Q"),
        lines.mark_point(size=40, filled=True, opacity=1).encode(
            tooltip=[
                alt.Tooltip("series:N", title="event"),
                alt.Tooltip("predicted:Q", title="predicted", format=".4f"),
                alt.Tooltip("observed:Q", title="observed", format=".4f"),
                alt.Tooltip("count:Q", title="pairs", format=","),
            ]
        ),
    )
    return Chart(
        "reliability",
        title,
        "Predicted against observed probability that the large stage puts a candidate in its top c, in bins of equal "
        "size; on the dotted diagonal predictions come true.",
        rows_of([*_rows(drawn_rows, look)]),
        {"series": "Event", "predicted": "Predicted", "observed": "Observed", "count": "Pairs"},
        shown(look, 380, *layers),
        series,
    )


def _name(row: Mapping[str, Any], look: Look) -> str:
    """Return the event; a picture has no table beside it, so that it says there how far p is off."""
    error = f": ECE {row['ece']:.4f}, floor {row['ece_floor']:.4f}" if look.picture else ""
    return f"in the top {row['cutoff']}{error}"


def _rows(told: Sequence[Mapping[str, Any]], look: Look) -> Iterator[Row]:
    for row in told:
        for at, (count, predicted, observed) in enumerate(row["bins"]):
            yield {"series": _name(row, look), "at": at, "count": count, "predicted": predicted, "observed": observed}
