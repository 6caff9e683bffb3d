"""Every link of a page leads somewhere, on GitHub and in the site."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.pages import PAGES, ROOT, anchors, links


def _leads(page: Path, target: str) -> bool:
    path, _, anchor = target.partition("#")
    place = (page.parent / path).resolve() if path else page
    if not place.is_file() or not place.is_relative_to(ROOT):
        return False
    return not anchor or anchor in anchors(place)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    """Its file is in the project, and its anchor is one heading's of that file."""
    assert [target for target in links(page) if not _leads(page, target)] == []


def test_links_and_anchors_are_found(tmp_path: Path) -> None:
    """What holds pages is not blind: code is left out, marks too, and a heading that is there twice has no anchor."""
    page = tmp_path / "page.md"
    page.write_text(
        "# A `b` (c)\n\n[x](a.md#b) `[no](no.md)` [y](https://e.test)\n\n```\n[no](no.md)\n# no\n```\n## Same\n## Same\n",
        encoding="utf-8",
    )
    assert links(page) == ["a.md#b"]
    assert anchors(page) == {"a-b-c"}
