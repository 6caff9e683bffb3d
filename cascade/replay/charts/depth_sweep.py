"""What a depth gives and costs: recall of the candidates, then quality, then time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import altair as alt

from cascade.replay.charts.chart import PAGE, Chart, Look, Row, interval_of, rows_of, series_colour, shown, where_known
from cascade.replay.charts.theme import STAGES

__all__ = ["candidate_recall", "milliseconds", "quality"]

_DEPTH: Final = "Depth: candidates that rerankers may score"
_CANDIDATES: Final = {"candidates": "#2b7bd0"}
_Rows = Callable[[Mapping[str, Any]], Iterator[Row]]


def candidate_recall(report: Mapping[str, Any], look: Look = PAGE) -> Chart | None:
    """Return the recall of the first candidates of each depth, None where nothing is judged."""

    def rows(at_depth: Mapping[str, Any]) -> Iterator[Row]:
        yield _row(at_depth, "candidates", at_depth["candidate_recall"], interval_of(at_depth, "candidate_recall"))

    title = "Recall of the candidates by depth"
    says = "How many of the relevant documents are among the first candidates, by depth."
    return _chart(report, look, "depth-recall", title, says, "Candidate recall", rows, _CANDIDATES)


def quality(report: Mapping[str, Any], look: Look = PAGE) -> Chart | None:
    """Return the quality of small, large and policy at each depth."""

    def rows(at_depth: Mapping[str, Any]) -> Iterator[Row]:
        for name in STAGES:
            yield _row(at_depth, name, at_depth[name], interval_of(at_depth, name))

    metric = report["conditions"]["metric"]
    says = f"{metric} of the small stage, the large stage and the policy where rerankers score so many candidates."
    return _chart(report, look, "depth-quality", "Quality by depth", says, metric, rows, STAGES)


def milliseconds(report: Mapping[str, Any], look: Look = PAGE) -> Chart | None:
    """Return the 95th percentile of milliseconds at each depth, None where the table has no times."""

    def rows(at_depth: Mapping[str, Any]) -> Iterator[Row]:
        for name in STAGES:
            yield _row(at_depth, name, at_depth["p95_ms"][name], interval_of(at_depth, "p95_ms", name))

    says = "95th percentile over queries of the milliseconds that pairs take, one after the other, by depth."
    return _chart(report, look, "depth-ms", "Time by depth", says, "p95, milliseconds", rows, STAGES)


def _row(at_depth: Mapping[str, Any], series: str, value: float | None, bounds: Mapping[str, float | None]) -> Row:
    return {"series": series, "depth": at_depth["depth"], "value": value, **bounds}


def _chart(
    report: Mapping[str, Any],
    look: Look,
    name: str,
    title: str,
    says: str,
    measure: str,
    rows: _Rows,
    series: Mapping[str, str],
) -> Chart | None:
    told = [row for each in report["depth_sweep"] for row in rows(each) if row["value"] is not None]
    if not told:
        return None
    present = {each: colour for each, colour in series.items() if any(row["series"] == each for row in told)}
    x = alt.X("depth:Q", title=_DEPTH, scale=alt.Scale(type="log", nice=False, padding=12), axis=_ticks(report))
    y = alt.Y("value:Q", title=measure, scale=alt.Scale(zero=False))
    base = alt.Chart().encode(x=x, color=series_colour(present, "Policy", look))
    layers = (
        *where_known(told, base.mark_area(opacity=0.14).encode(y=alt.Y("low:Q", title=measure), y2="high:Q")),
        base.mark_line(strokeWidth=2).encode(y=y),
        base.mark_point(size=50, filled=True, opacity=1).encode(
            y=y,
            tooltip=[
                alt.Tooltip("series:N", title="of"),
                alt.Tooltip("depth:Q", title="depth"),
                alt.Tooltip("value:Q", title=measure, format=".4f"),
                alt.Tooltip("low:Q", title="from", format=".4f"),
                alt.Tooltip("high:Q", title="to", format=".4f"),
            ],
        ),
    )
    columns = {"series": "Of", "depth": "Depth", "value": measure, "low": "from", "high": "to"}
    return Chart(name, title, says, rows_of(told), columns, shown(look, 260, *layers), present)


def _ticks(report: Mapping[str, Any]) -> alt.Axis:
    return alt.Axis(values=[each["depth"] for each in report["depth_sweep"]], format="d")
