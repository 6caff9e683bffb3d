"""The page of a report, without a browser."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from cascade.errors import ConfigError
from cascade.replay.html.page import page, write_page
from tests.replay.reported import HOSTILE, bare_report, whole_report

_EMPTY = {"meta"}


@dataclass
class _Page(HTMLParser):
    """What a parser sees: every element, and what stands in scripts and styles."""

    elements: list[tuple[str, dict[str, str | None]]] = field(default_factory=list)
    texts: dict[str, list[str]] = field(default_factory=lambda: {"script": [], "style": []})
    open: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in _EMPTY:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in self.texts:
            self.texts[self.open[-1]].append(data)

    def of(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


@pytest.fixture(scope="module")
def parsed() -> _Page:
    """Return the page of a report in which every section is, parsed."""
    made = _Page()
    made.feed(page(whole_report()))
    made.close()
    return made


def _embedded(parsed: _Page, name: str) -> Any:
    at = [attributes.get("id") for attributes in parsed.of("script")].index(name)
    return json.loads(parsed.texts["script"][at])


def test_a_page_is_whole(parsed: _Page) -> None:
    """Every element is closed; it has a language, a title, a viewport and what to do without scripts."""
    assert parsed.open == []
    assert parsed.of("html") == [{"lang": "en"}]
    assert {"name": "viewport", "content": "width=device-width, initial-scale=1"} in parsed.of("meta")
    for tag in ("title", "main", "nav", "header", "noscript"):
        assert len(parsed.of(tag)) == 1


def test_the_report_is_embedded_unchanged(parsed: _Page) -> None:
    """To the last digit and letter."""
    assert _embedded(parsed, "report") == json.loads(json.dumps(whole_report()))


def test_the_page_loads_nothing(parsed: _Page) -> None:
    """No element asks for anything elsewhere, and the policy forbids all of it."""
    for tag, attributes in parsed.elements:
        assert not {"src", "srcset", "action", "style", "data"} & attributes.keys(), tag
        assert not any(name.startswith("on") for name in attributes), tag
        assert attributes.get("href", "#main") == "#main"
    assert not {tag for tag, _ in parsed.elements} & {"link", "img", "iframe", "object", "embed", "base", "form"}
    assert not re.search(r"@import|url\(", parsed.texts["style"][0])


def test_only_its_own_scripts_and_style_may_run(parsed: _Page) -> None:
    """The Content-Security-Policy names them by hash, and allows neither eval nor anything inline."""
    policy = next(
        str(each["content"]) for each in parsed.of("meta") if each.get("http-equiv") == "Content-Security-Policy"
    )
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
    scripts = [
        text
        for attributes, text in zip(parsed.of("script"), parsed.texts["script"], strict=True)
        if attributes.get("type") != "application/json"
    ]
    assert rules["default-src"] == "'none'"
    assert rules["script-src"].split() == [_hash(text) for text in scripts]
    assert rules["style-src"] == _hash(parsed.texts["style"][0])
    assert "unsafe" not in policy


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def test_markup_in_an_id_stays_text(parsed: _Page) -> None:
    """It ends no script and opens no element."""
    assert HOSTILE not in page(whole_report())
    assert any(row["id"].startswith(HOSTILE) for row in _embedded(parsed, "report")["per_query"])
    assert len(parsed.of("script")) == 4
    assert not parsed.of("img")


def test_every_chart_that_can_be_drawn_is_there(parsed: _Page) -> None:
    """With its rows beside its specification."""
    charts = {chart["name"]: chart for chart in _embedded(parsed, "charts")["charts"]}
    assert [*charts] == [
        "recovered", "absolute", "regret", "ceiling", "depth-recall", "depth-quality", "depth-ms", "levels", "reliability"
    ]  # fmt: skip
    for chart in charts.values():
        assert chart["rows"]
        assert chart["spec"]["data"] == {"name": "rows"}
        assert chart["columns"].keys() <= {name for row in chart["rows"] for name in row}


def test_sections_that_a_report_lacks_need_no_charts() -> None:
    """A page of the parts that every report has is made all the same."""
    report = bare_report()
    kept = {
        key: value for key, value in report.items() if key not in {"regret", "ceiling", "depth_sweep", "reliability"}
    }
    made = _Page()
    made.feed(page(kept))
    assert [chart["name"] for chart in _embedded(made, "charts")["charts"]] == ["recovered", "absolute"]


def test_a_file_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    """In one sentence, by its option."""
    with pytest.raises(ConfigError, match=r"--html .*: cannot be written: IsADirectoryError"):
        write_page(bare_report(), tmp_path)
