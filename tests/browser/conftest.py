"""A headless Chromium, pages of reports opened in it from a disk, and the page of a rollout from a listener."""

from __future__ import annotations

import io
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest
from playwright.sync_api import Browser, Page, Route, sync_playwright

from cascade.replay.html.page import write_page
from cascade.telemetry.logs import configure_logging
from tests.logs import logging_given_back
from tests.server.admin_listener import Listener, admin_listener
from tests.server.rollout_desk import STABLE, FakeDesk, running
from tests.server.sidecar import LEVELS, release_of

LOOK_MS: Final = 2100
"""A little more than the time between two looks of the page of a rollout."""
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


@dataclass(frozen=True, slots=True)
class Shown:
    """An open page; ``said`` is what it wrote to the console, ``strayed`` what it asked of anybody else."""

    page: Page
    said: list[str] = field(default_factory=list)
    strayed: list[str] = field(default_factory=list)


Show = Callable[..., Shown]


@pytest.fixture
def log_of_its_own() -> Iterator[None]:
    """Log to memory."""
    with logging_given_back():
        configure_logging("info", io.BytesIO())
        yield


@pytest.fixture(scope="module")
def served() -> Iterator[Listener]:
    """Serve a release with load levels, once for all tests."""
    with admin_listener(release=release_of(levels=LEVELS, release=STABLE["release"])) as made:
        yield made


@pytest.fixture
def listener(served: Listener) -> Listener:
    """Give the listener with a rollout under way."""
    return served.afresh(FakeDesk(running(stable=STABLE | {"digest": "sha256:release"})))


@pytest.fixture
def show(browser: Browser, log_of_its_own: None) -> Iterator[Show]:
    """Give a function that opens the page of a listener; afterwards no page may have complained, or asked elsewhere."""
    pages: list[tuple[Shown, int]] = []

    def open_page(listener: Listener, width: int = 1200, scheme: Any = "light", complaints: int = 0) -> Shown:
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        made = Shown(context.new_page())

        def route(route: Route) -> None:
            if route.request.url.startswith(f"{listener.url}/"):
                route.continue_()
            else:
                made.strayed.append(route.request.url)
                route.abort()

        made.page.clock.install()
        made.page.route("**/*", route)
        made.page.on("console", lambda message: made.said.append(message.text))
        made.page.on("pageerror", lambda error: made.said.append(str(error)))
        made.page.on("dialog", lambda dialog: made.said.append(dialog.message))
        made.page.goto(f"{listener.url}/ui")
        pages.append((made, complaints))
        return made

    yield open_page
    for made, complaints in pages:
        made.page.context.close()
        assert made.strayed == []
        assert all(each.startswith("Failed to load resource") for each in made.said)
        assert (len(made.said) > 0) == (complaints > 0), made.said


def look_again(page: Page) -> None:
    """Let the page of a rollout look once more."""
    page.clock.run_for(LOOK_MS)
