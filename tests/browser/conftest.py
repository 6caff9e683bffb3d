"""A headless Chromium, and pages of reports opened in it from a disk."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest
from playwright.sync_api import Browser, Page, Route, sync_playwright

from cascade.replay.html.page import write_page

_ARGUMENTS: Final = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-quic",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Opened:
    """A page whose charts are drawn; ``said`` is what it wrote to the console, ``asked`` what it asked the network for."""

    page: Page
    said: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)


Open = Callable[..., Opened]


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Run one browser for all tests."""
    found = shutil.which("chromium")
    if found is None:
        pytest.fail("chromium is not on PATH: run scripts/browser")
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=found, args=[*_ARGUMENTS])
        yield running
        running.close()


@pytest.fixture
def opened(browser: Browser, tmp_path: Path) -> Iterator[Open]:
    """Give a function that opens the page of a report; afterwards no page may have complained or asked for anything."""
    pages: list[Opened] = []

    def open_page(report: dict[str, Any], width: int = 1200, scheme: Any = "light") -> Opened:
        path = tmp_path / f"report-{len(pages)}.html"
        write_page(report, path)
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        made = Opened(context.new_page())

        def route(route: Route) -> None:
            if route.request.url == path.as_uri():
                route.continue_()
            else:
                made.asked.append(route.request.url)
                route.abort()

        made.page.route("**/*", route)
        made.page.on("console", lambda message: made.said.append(message.text))
        made.page.on("pageerror", lambda error: made.said.append(str(error)))
        made.page.goto(path.as_uri())
        made.page.wait_for_selector("html[data-drawn]")
        pages.append(made)
        return made

    yield open_page
    for each in pages:
        each.page.context.close()
        assert (each.said, each.asked) == ([], [])
