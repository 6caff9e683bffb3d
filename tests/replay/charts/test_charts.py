"""What the charts of a report show."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any

import pytest

from cascade.replay.charts import curves, depth_sweep
from cascade.replay.charts.ceiling import ceiling
from cascade.replay.charts.chart import PICTURE, Chart, Row
from cascade.replay.charts.levels import levels
from cascade.replay.charts.regret import regret
from cascade.replay.charts.reliability import reliability
from cascade.replay.charts.theme import DARK, LIGHT, PARTS, POLICIES
from tests.replay.made import made_table
from tests.replay.reported import HOSTILE, bare_report, whole_report

_Make = Callable[[Mapping[str, Any]], Chart | None]


@pytest.fixture(scope="module")
def told() -> dict[str, Any]:
    """Return a report in which every section is."""
    return whole_report()


def _drawn(chart: Chart | None) -> Chart:
    assert chart is not None
    return chart


def _of(chart: Chart, **wanted: Any) -> list[Row]:
    return [row for row in chart.rows if all(row[name] == value for name, value in wanted.items())]


def test_a_curve_has_a_point_for_every_setting(told: dict[str, Any]) -> None:
    """Share, pairs and value as in the report, and in words which setting it is."""
    rows = _of(_drawn(curves.recovered(told)), kind="curve", series="static")
    assert [[row["share"], row["value"]] for row in rows] == told["curves"]["static"]
    assert [row["what"] for row in rows[:3]] == ["always small", "top 0", "top 1"]
    assert rows[-1]["pairs"] == 20.0
    policy = _of(_drawn(curves.recovered(told)), kind="curve", series="policy")
    assert policy[1]["what"] == f"price {told['curve_settings']['policy'][1]:.4g}"


def test_costs_at_levels_have_intervals(told: dict[str, Any]) -> None:
    """Along the cost, each at its level, drawn apart by policy; chance has none."""
    chart = _drawn(curves.recovered(told))
    rows = _of(chart, kind="level", series="policy")
    assert [row["value"] for row in rows] == [0.8, 0.9, 0.95, 0.98]
    assert [row["low"] for row in rows] == [low for low, _ in told["intervals"]["cost_at_recovered"]["policy"].values()]
    places = {row["place"] for row in _of(chart, kind="level", value=0.95)}
    assert len(places) == len(told["curves"]) - 1
    assert all(abs(place - 0.95) < 0.02 for place in places)
    assert not _of(chart, kind="level", series="random")


def test_a_level_that_is_not_reached_is_not_drawn(told: dict[str, Any]) -> None:
    """It has no cost to stand at."""
    changed = deepcopy(told)
    changed["cost_at_recovered"]["static"]["0.98"] = None
    assert len(_of(_drawn(curves.recovered(changed)), kind="level", series="static")) == 3


def test_absolute_quality_has_the_intervals_of_reported_settings(told: dict[str, Any]) -> None:
    """Every policy stands where it is reported, those without a curve too."""
    chart = _drawn(curves.absolute(told))
    rows = {row["series"]: row for row in _of(chart, kind="reported")}
    policies = {each["name"]: each for each in told["policies"]}
    assert rows.keys() == policies.keys()
    small = policies["small"]
    assert (rows["small"]["share"], rows["small"]["value"]) == (0.0, small["ndcg"])
    assert [rows["small"]["low"], rows["small"]["high"]] == small["intervals"]["ndcg"]
    assert chart.series == {name: colour for name, colour in POLICIES.items() if name in policies}


def test_what_is_measured_is_named(told: dict[str, Any]) -> None:
    """By metric and cut-off; mrr has none, and silver says so."""
    assert curves.absolute(told).columns["value"] == "ndcg@5"
    assert curves.absolute(bare_report(metric="mrr")).columns["value"] == "mrr"
    assert curves.absolute(bare_report(made_table(rel=None))).columns["value"] == "silver ndcg@5"


def test_parts_of_regret_sum_to_the_total(told: dict[str, Any]) -> None:
    """Of all queries and of each slice, which is named with its number of queries."""
    chart = regret(told)
    bars = {row["value"] for row in chart.rows}
    assert bars == {"all queries", "identifier (30)", "multi-part (30)", "other (30)", f"{HOSTILE} (45)", "web (45)"}
    for bar in bars:
        total = _of(chart, value=bar, series="total")[0]
        parts = [_of(chart, value=bar, series=part)[0]["amount"] for part in PARTS]
        assert sum(parts) == pytest.approx(total["amount"], abs=1e-8)
    assert _of(chart, value="all queries", series="total")[0]["low"] == told["regret"]["intervals"]["total"][0]


def test_a_page_draws_one_attribute_and_a_picture_all(told: dict[str, Any]) -> None:
    """Nobody can choose in a picture, so that it is as high as all bars."""
    assert regret(told).spec()["height"] == 30 * 4
    assert regret(told, PICTURE).spec()["height"] == 30 * 6
    assert [each["name"] for each in regret(told).spec()["params"]] == ["hidden", "slice"]
    assert "params" not in regret(told, PICTURE).spec()


def test_without_slices_there_is_one_bar() -> None:
    """That of all queries."""
    made = bare_report(made_table(attributes={}))
    assert {row["value"] for row in regret(made).rows} == {"all queries"}
    assert regret(made).spec()["height"] == 30


def test_reliability_has_bins_of_all_classes_together(told: dict[str, Any]) -> None:
    """A series for each cutoff, and the diagonal; a picture says how far p is off."""
    rows = told["reliability"]["rows"]
    chart = _drawn(reliability(rows))
    assert [*chart.series] == ["in the top 1", "in the top 3", "in the top 5", "in the top 10"]
    first = next(row for row in rows if row["query_class"] == "all")
    assert [[row["count"], row["predicted"], row["observed"]] for row in _of(chart, series="in the top 1")] == first[
        "bins"
    ]
    diagonal = chart.spec()["layer"][0]["encoding"]
    assert [diagonal[channel]["datum"] for channel in ("x", "y", "x2", "y2")] == [0, 0, 1, 1]
    assert next(iter(_drawn(reliability(rows, PICTURE)).series)) == (
        f"in the top 1: ECE {first['ece']:.4f}, floor {first['ece_floor']:.4f}"
    )


def test_a_depth_gives_recall_quality_and_time(told: dict[str, Any]) -> None:
    """Each with its interval."""
    shallow = told["depth_sweep"][0]
    recall = _drawn(depth_sweep.candidate_recall(told)).rows[0]
    assert (recall["depth"], recall["value"]) == (shallow["depth"], shallow["candidate_recall"])
    assert [recall["low"], recall["high"]] == shallow["intervals"]["candidate_recall"]
    quality = _drawn(depth_sweep.quality(told))
    assert _of(quality, series="policy", depth=shallow["depth"])[0]["value"] == shallow["policy"]
    time = _drawn(depth_sweep.milliseconds(told))
    assert _of(time, series="large", depth=shallow["depth"])[0]["value"] == shallow["p95_ms"]["large"]
    assert [*time.series] == ["small", "large", "policy"]


def test_the_ceiling_is_recall_by_head(told: dict[str, Any]) -> None:
    """Beside that of all candidates."""
    rows = _drawn(ceiling(told)).rows
    assert [[row["head"], row["recall"]] for row in rows] == told["ceiling"]["recall_at"]
    assert {row["all"] for row in rows} == {told["ceiling"]["candidates"]}


def test_levels_have_quality_and_work(told: dict[str, Any]) -> None:
    """A row each, in the order of the release."""
    rows = _drawn(levels(told)).rows
    assert [row["name"] for row in rows] == ["normal", "degraded-1", "degraded-2"]
    assert (rows[2]["share"], rows[2]["small"], rows[2]["value"]) == (0.0, 0.0, told["levels"][2]["ndcg"])


@pytest.mark.parametrize(
    "make",
    [
        curves.recovered,
        levels,
        depth_sweep.candidate_recall,
        depth_sweep.milliseconds,
        ceiling,
        lambda told: reliability(told["reliability"]["rows"]),
    ],
)
def test_what_a_report_cannot_fill_is_no_chart(make: _Make) -> None:
    """Without judgements, calibration, release and times there is nothing to draw."""
    made = deepcopy(bare_report(made_table(rel=None)))
    made["curves"] = dict.fromkeys(made["curves"])
    assert make(made) is None


def test_without_a_policy_its_line_is_not_there() -> None:
    """Nor in the legend."""
    chart = _drawn(depth_sweep.quality(bare_report()))
    assert [*chart.series] == ["small", "large"]


def test_too_few_queries_have_no_intervals() -> None:
    """Nothing is drawn of them, and nothing breaks."""
    made = bare_report(made_table(4))
    for chart in (curves.absolute(made), regret(made), _drawn(ceiling(made)), _drawn(depth_sweep.quality(made))):
        assert all("low" not in row for row in chart.rows)
        assert not any(mark in str(chart.spec()) for mark in ("'type': 'rule'", "'type': 'area'"))


def test_rows_are_handed_over_beside_the_specification(told: dict[str, Any]) -> None:
    """So that they are in a page once, and a legend outside of the chart can hide series."""
    spec = curves.absolute(told).spec()
    assert (spec["data"], "datasets" in spec, "config" in spec) == ({"name": "rows"}, False, False)
    assert {"filter": "indexof(hidden, datum.series) < 0"} in spec["transform"]
    assert spec["layer"][0]["encoding"]["color"]["legend"] is None


@pytest.mark.parametrize(("background", "least"), [("#ffffff", 3.0), ("#0f1318", 3.0)])
def test_colours_are_seen_on_white_and_on_black(background: str, least: float) -> None:
    """At 3:1 at least, as WCAG 2.1 asks of graphics (1.4.11)."""
    assert LIGHT["background"] == "#ffffff"
    assert DARK["background"] is None
    for colour in {*POLICIES.values(), *PARTS.values()}:
        assert _contrast(colour, background) >= least, colour


def _contrast(one: str, other: str) -> float:
    lighter, darker = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def _luminance(colour: str) -> float:
    channels = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
