"""A chart: what it shows, in words, as rows, and drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import altair as alt

__all__ = [
    "HIDDEN",
    "PAGE",
    "PICTURE",
    "ROWS",
    "Chart",
    "Look",
    "Row",
    "interval_of",
    "rows_of",
    "series_colour",
    "shown",
    "where_known",
]

Row = Mapping[str, Any]

ROWS: Final = "rows"
"""Name of the data that every chart draws: rows are handed over beside it, once."""

HIDDEN: Final = "hidden"
"""Parameter of every chart with series: names of the series that are not drawn."""


@dataclass(frozen=True, slots=True)
class Look:
    """Where a chart is looked at: as a picture it has a width in pixels, a legend, and nothing to choose."""

    width: int = 0

    @property
    def picture(self) -> bool:
        """Tell whether nobody can ask the chart for more."""
        return self.width > 0


PAGE: Final = Look()
"""As wide as its place. The page has a legend that works without a mouse."""

PICTURE: Final = Look(width=440)


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart of ``rows``.

    ``columns`` are the headings, by field, under which the rows stand as a table. ``series`` has the colour of each
    series by name. ``says`` tells in words what is drawn, for those who do not see it.
    """

    name: str
    title: str
    says: str
    rows: Sequence[Row]
    columns: Mapping[str, str]
    drawn: alt.LayerChart
    series: Mapping[str, str] = field(default_factory=dict)

    def spec(self) -> dict[str, Any]:
        """Return the Vega-Lite specification, without the rows."""
        made: dict[str, Any] = self.drawn.to_dict(format="vega-lite")
        return {key: value for key, value in made.items() if key not in {"config", "datasets"}}


def rows_of(values: Sequence[Row]) -> list[Row]:
    """Return rows without what is not there."""
    return [{name: value for name, value in row.items() if value is not None} for row in values]


def interval_of(figures: Mapping[str, Any], *path: str) -> dict[str, float | None]:
    """Return ``low`` and ``high`` of a figure's interval, None where it has none."""
    found: Any = figures["intervals"]
    for name in path:
        found = None if found is None else found[name]
    low, high = found or (None, None)
    return {"low": low, "high": high}


def where_known(rows: Sequence[Row], *drawn: alt.Chart) -> tuple[alt.Chart, ...]:
    """Return what draws intervals, nothing where no row has one: too few queries, say."""
    return drawn if any(row.get("low") is not None and row.get("high") is not None for row in rows) else ()


def series_colour(series: Mapping[str, str], title: str, look: Look, columns: int = 4) -> alt.Color:
    """Return the colour of each row by its series. A picture has a legend where there are several."""
    scale = alt.Scale(domain=[*series], range=[*series.values()])
    several = look.picture and len(series) > 1
    legend = (
        alt.Legend(title=None, orient="bottom", columns=columns, symbolOpacity=1, labelLimit=300) if several else None
    )
    return alt.Color("series:N", title=title, scale=scale, legend=legend)


def shown(look: Look, height: int, *layers: alt.Chart) -> alt.LayerChart:
    """Return layers with their data and size and, on a page, the parameter that hides series."""
    drawn = alt.LayerChart(layer=[*layers]).properties(data=alt.NamedData(name=ROWS), height=height)
    if look.picture:
        return drawn.properties(width=look.width)
    fits = alt.AutoSizeParams(type="fit-x", contains="padding")
    hides = alt.param(name=HIDDEN, value=[])
    wide = drawn.properties(width="container", autosize=fits).add_params(hides)
    return wide.transform_filter(f"indexof({HIDDEN}, datum.series) < 0")
