"""Tell an address from a path, and show it without what may be secret in it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final
from urllib.parse import SplitResult, urlsplit

__all__ = ["checked_place", "shown_place"]

_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


def checked_place(written: str) -> Path | str:
    """Return where a release is: an http(s) address as written, else a path. Raises ValueError for any other address."""
    if _SCHEME.match(written) is None:
        return Path(written)
    parts = _split(written)
    if parts is None or parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ValueError("must be a path, or an http or https address")
    if parts.username is not None or parts.password is not None:
        raise ValueError("an address holds no credentials; name a file of a token in release_auth_file")
    if parts.fragment or not written.isascii() or not written.isprintable() or " " in written:
        raise ValueError("must be an address without fragment, of printable ASCII")
    return written


def shown_place(place: Path | str) -> str:
    """Return a place as it may be shown: a query may hold a signature that opens it."""
    if isinstance(place, Path):
        return str(place)
    bare, query, _ = place.partition("?")
    return f"{bare}{query}…" if query else bare


def _split(written: str) -> SplitResult | None:
    try:
        parts = urlsplit(written)
        _ = parts.port  # a port that is none raises too
    except ValueError:
        return None
    return parts
