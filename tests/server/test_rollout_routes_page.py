"""The page of a rollout, as it is served."""

from __future__ import annotations

import base64
import hashlib
import re
from pathlib import Path

from cascade.server import page
from cascade.server.page.assembled import page_of
from tests.server.rollout_desk import FakeDesk, running
from tests.server.sidecar import release_of, sidecar


def _hashes(html: str, tag: str) -> list[str]:
    """Return the hashes of the elements of a name, as a policy names them."""
    found = re.findall(rf"<{tag}[^>]*>(.*?)</{tag}>", html, re.DOTALL)
    return [f"'sha256-{base64.b64encode(hashlib.sha256(each.encode()).digest()).decode()}'" for each in found]


async def test_the_page_runs_its_own_script_alone() -> None:
    """By the policy's hashes: no other script or style, no eval, nothing from elsewhere, and no frame around it."""
    answer = await sidecar().admin.get("/ui")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    policy = dict(each.strip().split(" ", 1) for each in answer.headers["content-security-policy"].split(";"))
    assert [policy["script-src"]] == _hashes(answer.text, "script")
    assert [policy["style-src"]] == _hashes(answer.text, "style")
    assert policy["default-src"] == policy["frame-ancestors"] == policy["form-action"] == policy["base-uri"] == "'none'"
    assert policy["connect-src"] == "'self'"
    assert policy["require-trusted-types-for"] == "'script'"
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "no-referrer"


async def test_the_page_loads_nothing() -> None:
    """No address of a network in it, no element that loads one, and no handler or style in an attribute."""
    html = (await sidecar().admin.get("/ui")).text
    addresses = set(re.findall(r"(?:https?:)?//[a-z][a-z0-9.-]*\.[a-z]+[^\s\"'`)]*", html))
    assert addresses == {"http://www.w3.org/2000/svg"}
    assert re.findall(r"<(?:img|iframe|object|embed|base|video|audio)\b", html) == []
    assert re.findall(r"<[a-z][^>]*\s(?:on[a-z]+|style|src)=", html) == []
    assert re.findall(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function", html) == []


async def test_the_page_holds_nothing_of_the_process() -> None:
    """It is the same whatever is rolled out; where routes ask for a key it says only that."""
    busy = sidecar(desk=FakeDesk(running()), release=release_of(release="secret-plan"))
    html = (await busy.admin.get("/ui")).content
    assert html == (await sidecar().admin.get("/ui")).content == page_of(asks_for_key=False)[0]
    asks, _ = page_of(asks_for_key=True)
    assert asks.replace(b'data-key="asked"', b'data-key="not-asked"') == html != asks


def test_every_script_of_the_folder_is_in_the_page() -> None:
    """None is forgotten."""
    html = page_of(asks_for_key=False)[0].decode()
    scripts = sorted(Path(page.__file__).parent.glob("*.js"))
    assert len(scripts) == 9
    for script in scripts:
        assert script.read_text(encoding="utf-8").splitlines()[0] in html
