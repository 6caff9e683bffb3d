"""The page of a report, in a browser."""

from __future__ import annotations

from copy import deepcopy
from typing import Any, Final

import pytest
from playwright.sync_api import Locator, Page, expect

from cascade.replay.charts.theme import POLICIES
from tests.browser.conftest import Open
from tests.replay.made import made_table
from tests.replay.reported import HOSTILE, bare_report, whole_report

pytestmark = pytest.mark.browser

_ROWS: Final = "#query-table tbody tr"


def _column(page: Page, key: str) -> list[str]:
    """Return what a column of the table of queries shows."""
    keys = page.locator("#query-table thead th").evaluate_all("heads => heads.map(head => head.dataset.key)")
    return page.locator(f"{_ROWS} > :nth-child({keys.index(key) + 1})").all_inner_texts()


def _marks(page: Page, chart: str, kind: str) -> Locator:
    return page.locator(f"#chart-{chart} svg .mark-{kind} path")


def _painted(page: Page, chart: str, kind: str, colour: str) -> int:
    """Return how many marks of a chart have a colour."""
    return page.locator(f'#chart-{chart} svg .mark-{kind} path:is([fill="{colour}"],[stroke="{colour}"])').count()


def test_every_chart_is_drawn(opened: Open) -> None:
    """With a mark for each of the rows that it has, and in words for who does not see it."""
    page = opened(whole_report()).page
    assert page.locator("html").get_attribute("data-drawn") == "9"
    told = whole_report()
    lines = page.locator("#chart-recovered svg .mark-line path").count()
    assert lines == len(told["curves"])
    bins = sum(len(row["bins"]) for row in told["reliability"]["rows"])
    assert _marks(page, "reliability", "symbol").count() == bins
    assert _marks(page, "levels", "symbol").count() == 3
    for drawn in page.locator("figure .drawn").all():
        assert drawn.get_attribute("role") == "graphics-document"
        assert len(drawn.get_attribute("aria-label") or "") > 30


def test_marks_stand_at_the_values_of_the_report(opened: Open) -> None:
    """What a mark says of itself is what the report has."""
    page = opened(whole_report()).page
    said = _marks(page, "levels", "symbol").evaluate_all("all => all.map(one => one.ariaLabel)")
    for level, text in zip(whole_report()["levels"], said, strict=True):
        assert f"level: {level['name']}" in text
        assert f"ndcg: {level['ndcg']}" in text


def test_figures_of_the_report_are_on_the_page(opened: Open) -> None:
    """The gap at the top, a policy in its table, a p-value in its own."""
    told = whole_report()
    page = opened(told).page
    expect(page.locator(".tiles")).to_contain_text(f"+{told['gap']:.3f}")
    row = page.locator("#policies tbody tr", has=page.get_by_role("rowheader", name="policy", exact=True))
    policy = next(each for each in told["policies"] if each["name"] == "policy")
    expect(row).to_contain_text(f"{policy['ndcg']:.3f}")
    expect(row).to_contain_text("{:.3f} to {:.3f}".format(*policy["intervals"]["ndcg"]))
    assert row.get_attribute("class") == "own"
    pair = told["tests"]["pairs"][0]
    expect(page.locator("#tests tbody tr").first).to_contain_text(f"{pair['p_holm']:.4f}")
    for claim in told["tests"]["non_inferiority"]:
        expect(page.locator(".claims")).to_contain_text(claim["says"])


def test_measure_is_switched(opened: Open) -> None:
    """Between share recovered and absolute quality, whose chart is as wide."""
    page = opened(whole_report()).page
    expect(page.locator("#chart-recovered")).to_be_visible()
    expect(page.locator("#chart-absolute")).to_be_hidden()
    page.get_by_label("absolute ndcg@5").check()
    expect(page.locator("#chart-recovered")).to_be_hidden()
    expect(page.locator("#chart-absolute svg")).to_be_visible()
    page.wait_for_function("document.querySelector('#chart-absolute svg').clientWidth > 900")


def test_the_legend_hides_a_policy_by_keyboard(opened: Open) -> None:
    """And shows it again; the other lines stay."""
    page = opened(whole_report()).page
    box = page.locator("#chart-recovered").get_by_role("checkbox", name="static-fused")
    drawn = _painted(page, "recovered", "line", POLICIES["static-fused"])
    assert drawn == 1
    box.focus()
    page.keyboard.press("Space")
    expect(page.locator(f'#chart-recovered .mark-line path[stroke="{POLICIES["static-fused"]}"]')).to_have_count(0)
    assert _painted(page, "recovered", "line", POLICIES["static"]) == 1
    page.keyboard.press("Space")
    expect(page.locator(f'#chart-recovered .mark-line path[stroke="{POLICIES["static-fused"]}"]')).to_have_count(1)


def test_pointing_at_a_mark_tells_setting_share_and_quality(opened: Open) -> None:
    """In a box beside it."""
    page = opened(whole_report()).page
    mark = _marks(page, "recovered", "symbol").last
    mark.scroll_into_view_if_needed()
    mark.hover(force=True)
    tooltip = page.locator("#vg-tooltip-element")
    expect(tooltip).to_be_visible()
    for name in ("policy", "setting", "share of pairs", "pairs a query", "cost from"):
        expect(tooltip).to_contain_text(name)


def test_regret_is_shown_by_the_slice_chosen(opened: Open) -> None:
    """With as many bars as it has values."""
    page = opened(whole_report()).page
    chart = page.locator("#chart-regret svg")
    expect(chart).to_contain_text("multi-part (30)")
    before = chart.bounding_box()
    page.locator("#regret").get_by_label("Slices by").select_option("source")
    expect(chart).to_contain_text("web (45)")
    expect(chart).not_to_contain_text("multi-part (30)")
    after = chart.bounding_box()
    assert before is not None
    assert after is not None
    assert before["height"] - after["height"] == pytest.approx(30, abs=1)


def test_numbers_of_a_chart_are_a_table(opened: Open) -> None:
    """For who cannot point, and for copying."""
    page = opened(whole_report()).page
    figure = page.locator("#chart-ceiling")
    figure.locator("summary").focus()
    page.keyboard.press("Enter")
    expect(figure.locator("tbody tr")).to_have_count(len(whole_report()["ceiling"]["recall_at"]))
    expect(figure.locator("tbody tr").last).to_contain_text(f"{whole_report()['ceiling']['recall_at'][-1][1]:.4f}")


def test_queries_are_sorted_by_keyboard(opened: Open) -> None:
    """Both ways, and the heading says which."""
    page = opened(whole_report()).page
    regret = page.locator('#query-table th[data-key="regret"]')
    expect(regret).to_have_attribute("aria-sort", "descending")
    head = page.locator('#query-table th[data-key="small"]')
    head.get_by_role("button").focus()
    page.keyboard.press("Enter")
    expect(head).to_have_attribute("aria-sort", "descending")
    expect(regret).not_to_have_attribute("aria-sort", "descending")
    shown = [float(text) for text in _column(page, "small")]
    assert shown == sorted(shown, reverse=True)
    page.keyboard.press("Enter")
    expect(head).to_have_attribute("aria-sort", "ascending")
    least = sorted(row["small"] for row in whole_report()["per_query"])[:25]
    assert _column(page, "small") == [f"{value:.3f}" for value in least]


def test_queries_are_filtered(opened: Open) -> None:
    """By class, source and cause, and by a part of the id; how many there are is told."""
    page = opened(whole_report()).page
    rows = [row for row in whole_report()["per_query"] if row["q_class"] == "identifier"]
    page.locator("#query-choices").get_by_label("Class").select_option("identifier")
    expect(page.locator("#query-rows")).to_have_text(f"1 to 25 of {len(rows)}")
    rows = [row for row in rows if row["cause"] == "wrong_cluster"]
    page.locator("#query-choices").get_by_label("Cause").select_option("wrong_cluster")
    expect(page.locator(_ROWS)).to_have_count(min(25, len(rows)))
    assert set(_column(page, "cause")) == {"wrong cluster"}
    page.locator("#query-choices").get_by_label("Id contains").fill("q2-")
    assert {"q2-" in name for name in _column(page, "id")} == {True}
    page.locator("#query-choices").get_by_label("Id contains").fill("no such query")
    expect(page.locator("#query-rows")).to_have_text("No query is like that.")


def test_queries_are_paged(opened: Open) -> None:
    """Twenty-five at a time, to the last."""
    page = opened(whole_report()).page
    back, on = page.get_by_role("button", name="Previous"), page.get_by_role("button", name="Next")
    expect(back).to_be_disabled()
    first = _column(page, "id")
    for _ in range(3):
        on.click()
    expect(page.locator("#query-rows")).to_have_text("76 to 90 of 90")
    expect(on).to_be_disabled()
    assert not set(first) & set(_column(page, "id"))
    back.click()
    expect(page.locator("#query-rows")).to_have_text("51 to 75 of 90")


def test_why_a_query_was_decided_so_is_told(opened: Open) -> None:
    """In the words of the report."""
    page = opened(whole_report()).page
    why = whole_report()["per_query"][0]["why"]
    expected = f"margin {why['margin']:.3f}, entropy {why['entropy']:.3f}, expected loss {why['expected_loss']:.3f}"
    assert _column(page, "why")[0] == expected


def test_markup_in_an_id_stays_text(opened: Open) -> None:
    """In tables, charts, selects and tooltips; no element comes of it."""
    page = opened(whole_report()).page
    page.locator("#query-choices").get_by_label("Id contains").fill("script")
    assert _column(page, "id")[0].startswith(HOSTILE)
    page.locator("#regret").get_by_label("Slices by").select_option("source")
    page.locator('#chart-regret svg .mark-rect path[aria-label*="wasted escalation"][aria-label*="img"]').hover()
    expect(page.locator("#vg-tooltip-element")).to_contain_text(HOSTILE)
    page.locator("#slices").get_by_label("Slices by").select_option("source")
    expect(page.locator("#slices tbody th").first).to_have_text(HOSTILE)
    assert page.locator("img").count() == 0
    assert page.title() == "small \u2192 large: report of cascade eval"


@pytest.mark.parametrize(
    ("table", "loud"),
    [
        (made_table(noise=4.0), "The large stage is WORSE than the small one"),
        (made_table(rel=None), "NOT JUDGED: quality is silver."),
        (made_table(4), "It is NOT SHOWN that the large stage helps."),
    ],
    ids=["harms", "silver", "few"],
)
def test_what_must_not_be_missed_is_loud(opened: Open, table: Any, loud: str) -> None:
    """At the top, as an alert; nothing in the page fails for what is undefined."""
    page = opened(bare_report(table)).page
    expect(page.locator("header [role=alert]").first).to_contain_text(loud)
    expect(page.locator("header [role=note]").first).to_be_visible()


def test_a_section_that_is_not_there_says_why(opened: Open) -> None:
    """Each by its own reason; none is blank."""
    page = opened(bare_report()).page
    for name, why in {
        "decided": "no policy was replayed",
        "support": "--support-tokens",
        "reliability": "no calibration was given",
        "levels": "--release",
        "differences": "nothing but baselines was replayed",
    }.items():
        expect(page.locator(f"#{name} .absent")).to_contain_text(why)
    for each in page.locator("main > section").all():
        assert len(each.inner_text().splitlines()) > 1


def test_a_report_of_the_parts_that_all_have_is_shown(opened: Open) -> None:
    """An older one, say, that lacks the sections."""
    told = bare_report()
    optional = {
        "regret", "oracle", "ceiling", "depth_sweep", "reliability", "tests", "levels", "latency", "cost", "ties",
        "per_query", "per_query_left_out",
    }  # fmt: skip
    page = opened({key: value for key, value in told.items() if key not in optional}).page
    assert page.locator(".absent").count() >= len(optional) - 1


@pytest.mark.parametrize("width", [400, 1200])
def test_nothing_runs_over_the_side(opened: Open, width: int) -> None:
    """Wide tables scroll in a box of their own, which takes the focus."""
    page = opened(whole_report(), width=width).page
    assert page.evaluate("document.documentElement.scrollWidth") == width
    widths = page.locator("figure .drawn svg:visible").evaluate_all("all => all.map(one => one.clientWidth)")
    assert max(widths) <= width
    assert min(widths) > 200
    assert set(page.locator(".scroll").evaluate_all("all => all.map(one => one.tabIndex)")) == {0}


def test_the_page_follows_the_scheme(opened: Open) -> None:
    """Charts are drawn again, and what was hidden stays hidden."""
    page = opened(whole_report(), scheme="dark").page
    background = "getComputedStyle(document.body).backgroundColor"
    assert page.evaluate(background) == "rgb(15, 19, 24)"
    text = page.locator("#chart-recovered svg .role-axis-label text").first
    assert text.get_attribute("fill") == "#a4acb6"
    page.locator("#chart-recovered").get_by_role("checkbox", name="oracle").uncheck()
    page.emulate_media(color_scheme="light")
    expect(page.locator("#chart-recovered svg .role-axis-label text").first).to_have_attribute("fill", "#57606a")
    assert page.evaluate(background) == "rgb(255, 255, 255)"
    expect(page.locator(f'#chart-recovered .mark-line path[stroke="{POLICIES["oracle"]}"]')).to_have_count(0)


def test_everything_that_is_chosen_has_a_name(opened: Open) -> None:
    """Fields have labels, sections headings, links somewhere to go."""
    page = opened(whole_report()).page
    unnamed = page.locator("input, select").evaluate_all("all => all.filter(one => !one.labels.length).length")
    assert unnamed == 0
    headed = page.locator("main > section").evaluate_all(
        "all => all.every(one => document.getElementById(one.getAttribute('aria-labelledby')).textContent)"
    )
    assert headed
    aims = page.locator("nav a").evaluate_all("all => all.map(one => document.querySelector(one.hash)?.id)")
    assert None not in aims
    assert len(aims) == page.locator("main > section").count()


def test_thousand_queries_are_listed(opened: Open) -> None:
    """And those left out are counted."""
    told = deepcopy(whole_report())
    row = told["per_query"][0]
    told["per_query"] = [{**row, "id": f"q{number}", "regret": 1.0 - number / 1000} for number in range(1000)]
    told["per_query_left_out"] = 4321
    page = opened(told).page
    expect(page.locator("#queries")).to_contain_text("4,321 more are left out")
    expect(page.locator("#query-rows")).to_have_text("1 to 25 of 1,000")
