"""Where regret comes from: its parts, stacked, of all queries and of each slice."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import altair as alt

from cascade.replay.charts.chart import PAGE, Chart, Look, Row, interval_of, rows_of, series_colour, shown, where_known
from cascade.replay.charts.theme import PARTS

__all__ = ["SLICE", "regret"]

SLICE: Final = "slice"
"""Parameter: the attribute whose values are drawn below all queries."""

_ALL: Final = "all queries"
_TOTAL: Final = "total"
_BAR: Final = 30
"""Pixels from one bar to the next."""


def regret(report: Mapping[str, Any], look: Look = PAGE) -> Chart:
    """Return mean regret by part, of all queries and of the values of one attribute at a time.

    A policy may be better than every action that was tried: ``other`` is below zero then.
    """
    told = report["regret"]
    rows = [*_rows(told)]
    first = next(iter(told["by"]), "")
    y = alt.Y("value:N", title=None, sort=None, axis=alt.Axis(labelLimit=140))
    bars = alt.Chart().transform_filter(f"datum.series != '{_TOTAL}'")
    totals = alt.Chart().transform_filter(f"datum.series == '{_TOTAL}'")
    tooltip = [
        alt.Tooltip("value:N", title="queries of"),
        alt.Tooltip("series:N", title="part"),
        alt.Tooltip("amount:Q", title="mean regret", format=".4f"),
        alt.Tooltip("low:Q", title="from", format=".4f"),
        alt.Tooltip("high:Q", title="to", format=".4f"),
    ]
    layers = (
        bars.mark_bar(size=18).encode(
            y=y,
            x=alt.X("amount:Q", title="Mean regret of a query, in units of utility", stack="zero"),
            color=series_colour(PARTS, "Part", look),
            tooltip=tooltip,
            order=alt.Order("at:Q"),
        ),
        *where_known(rows, totals.mark_rule(style="interval").encode(y=y, x="low:Q", x2="high:Q")),
        totals.mark_tick(style="interval", thickness=2, size=18).encode(y=y, x="amount:Q", tooltip=tooltip),
    )
    listed = told["by"] if look.picture else {first: told["by"].get(first, {})}
    drawn = shown(look, _BAR * (1 + sum(map(len, listed.values()))), *layers)
    if not look.picture:
        chosen = f"datum.attribute == '' || datum.attribute == {SLICE}"
        drawn = drawn.add_params(alt.param(name=SLICE, value=first)).transform_filter(chosen)
    return Chart(
        "regret",
        f"Regret of {told['of']}, by the decision it comes from",
        "Stacked bars: mean regret by part, of all queries and of each slice, with the total and its interval.",
        rows_of(rows),
        {"value": "Queries of", "series": "Part", "amount": "Mean regret", "low": "from", "high": "to"},
        drawn,
        PARTS,
    )


def _rows(told: Mapping[str, Any]) -> Iterator[Row]:
    yield from _of(told, "", _ALL)
    for attribute, values in told["by"].items():
        for value, figures in values.items():
            yield from _of(figures, attribute, f"{value} ({figures['queries']})")


def _of(figures: Mapping[str, Any], attribute: str, value: str) -> Iterator[Row]:
    for at, part in enumerate((*PARTS, _TOTAL)):
        yield {
            "attribute": attribute,
            "value": value,
            "series": part,
            "at": at,
            "amount": figures[part.replace(" ", "_")],
            **interval_of(figures, part.replace(" ", "_")),
        }
