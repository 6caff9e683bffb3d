"""Paths and addresses of releases, and how they are shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from cascade.rollout.sources.address import checked_place, shown_place


@pytest.mark.parametrize(
    "written", ["release.yaml", "/etc/cascade/bundle.tar", "./a:b", "C:\\release.yaml", "http", "x//y"]
)
def test_what_has_no_scheme_is_a_path(written: str) -> None:
    """It stays as it was written."""
    assert checked_place(written) == Path(written)


@pytest.mark.parametrize("written", ["https://bundles.example/r.tar", "http://[::1]:8080/r.tar?sig=1", "HTTP://h/x"])
def test_an_address_is_text_as_it_was_written(written: str) -> None:
    """A path would lose one of its slashes."""
    assert checked_place(written) == written


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ("ftp://h/x", "a path, or an http or https address"),
        ("s3://bucket/x", "a path, or an http or https address"),
        ("file:///etc/x", "a path, or an http or https address"),
        ("http://", "a path, or an http or https address"),
        ("http://h:99999/", "a path, or an http or https address"),
        ("http://[::1/", "a path, or an http or https address"),
        ("https://kingfisher@h/x", "an address holds no credentials; name a file of a token in release_auth_file"),
        ("https://:kingfisher@h/x", "an address holds no credentials"),
        ("https://h/x#kingfisher", "without fragment, of printable ASCII"),
        ("https://h/king fisher", "without fragment, of printable ASCII"),
        ("https://h/kingfishér", "without fragment, of printable ASCII"),
    ],
)
def test_any_other_address_is_refused(written: str, told: str) -> None:
    """The rule is told, and nothing of what was written."""
    with pytest.raises(ValueError, match=told) as raised:
        checked_place(written)
    assert "kingfish" not in str(raised.value)


def test_a_query_is_not_shown() -> None:
    """It may be a signature that opens the address."""
    assert shown_place("https://h/r.tar?sig=kingfisher") == "https://h/r.tar?…"
    assert shown_place("https://h/r.tar") == "https://h/r.tar"
    assert shown_place(Path("a?b")) == "a?b"
