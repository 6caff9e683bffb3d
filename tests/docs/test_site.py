"""The site fetches nothing from elsewhere, and says so where it would."""

from __future__ import annotations

import importlib.util
import logging
import re
from types import ModuleType, SimpleNamespace
from typing import Any, Final

import pytest

from tests.docs.pages import PAGES, ROOT

_PAGE: Final[Any] = SimpleNamespace(file=SimpleNamespace(src_uri="docs/page.md"))


@pytest.fixture
def site() -> ModuleType:
    """Give the hooks of mkdocs."""
    spec = importlib.util.spec_from_file_location("site_hooks", ROOT / "scripts" / "site.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    "written",
    [
        '<script src="https://cdn.test/x.js">',
        "<link rel=stylesheet href=//fonts.test/css>",
        '<img alt="" src="http://a.test/b.png">',
    ],
)
def test_what_a_browser_would_fetch_from_elsewhere_is_a_warning(
    site: ModuleType, caplog: pytest.LogCaptureFixture, written: str
) -> None:
    """Strict, a warning fails the build; it names the page and the address."""
    assert site.on_post_page(f"<p>{written}</p>", _PAGE, None) == f"<p>{written}</p>"
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "docs/page.md" in caplog.text
    assert ".test/" in caplog.text


@pytest.mark.parametrize(
    "written", ['<a href="https://e.test/">', '<script src="../assets/x.js">', '<link href="x.css">']
)
def test_links_and_what_lies_in_the_site_are_none(
    site: ModuleType, caplog: pytest.LogCaptureFixture, written: str
) -> None:
    """A link is followed by who clicks; what is beside the page is served with it."""
    site.on_post_page(written, _PAGE, None)
    assert caplog.records == []


def test_the_site_has_every_page(site: ModuleType) -> None:
    """What these tests hold is what the site is made of, but for notes beside code."""
    held = {path for pattern in site.PAGES for path in ROOT.glob(pattern)}
    missing = {path.relative_to(ROOT).as_posix() for path in set(PAGES) - held}
    assert missing == set()


def test_a_page_stands_once_in_the_menu_and_the_style_is_of_the_site(site: ModuleType) -> None:
    """A page twice in the menu is in one place by mistake; a style sheet that is not taken along is fetched in vain."""
    written = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    pages = re.findall(r"^ +- .*: (\S+\.md)$", written, re.MULTILINE)
    assert len(pages) > 40
    assert len(set(pages)) == len(pages)
    styles = re.findall(r"^extra_css: \[(\S+)\]$", written, re.MULTILINE)
    assert styles
    assert set(styles) <= set(site.PAGES)
    assert all((ROOT / style).is_file() for style in styles)
