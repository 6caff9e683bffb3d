"""Put the page together from its parts, and say what a browser may do with it."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from string import Template
from types import MappingProxyType
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

__all__ = ["PAGE_PATH", "page_of", "page_route"]

PAGE_PATH: Final = "/ui"
_SCRIPTS: Final = (
    "dom.js", "words.js", "asking.js", "evidence.js", "standing.js", "releases.js", "decisions.js", "past.js", "page.js",
)  # fmt: skip
_POLICY: Final = (
    "default-src 'none'; script-src {script}; style-src {style}; connect-src 'self'; img-src data:; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
"""Nothing is loaded, and nothing runs but this very script, which never has text parsed as HTML."""
_HEADERS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "cache-control": "no-store",
        "cross-origin-opener-policy": "same-origin",
        "cross-origin-resource-policy": "same-origin",
        "referrer-policy": "no-referrer",
        "x-content-type-options": "nosniff",
        "x-frame-options": "DENY",
    }
)


def page_route(*, asks_for_key: bool) -> Route:
    """Return the route of the page. It holds nothing of the process but whether its routes ask for a key."""
    html, policy = page_of(asks_for_key=asks_for_key)
    headers = {**_HEADERS, "content-security-policy": policy}

    async def endpoint(http: Request) -> Response:
        return Response(html, headers=headers, media_type="text/html")

    return Route(PAGE_PATH, endpoint, methods=["GET"])


@cache
def page_of(*, asks_for_key: bool) -> tuple[bytes, str]:
    """Return the HTML and its policy."""
    style, script = _read("page.css"), "\n".join(map(_read, _SCRIPTS))
    html = Template(_read("page.html")).substitute(
        style=style, script=script, key="asked" if asks_for_key else "not-asked"
    )
    return html.encode(), _POLICY.format(script=_hash(script), style=_hash(style))


def _read(name: str) -> str:
    return (files(__package__) / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
