"""Who is let in, over HTTP."""

from __future__ import annotations

import asyncio
import io
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import httpx
import orjson
import pytest
import yaml
from starlette.routing import Route

from cascade.errors import ConfigError
from cascade.server.access import Access
from cascade.server.app import public_app
from cascade.server.building import open_service
from cascade.server.gate import is_loopback, open_access
from cascade.server.keys import hash_of
from cascade.server.routes import rerank_routes
from cascade.server.settings import Settings
from cascade.telemetry.logs import configure_logging
from cascade.testing.upstream import FakeTei
from tests.e2e.processes import listening
from tests.rollout.arrange import stage_data
from tests.server.asgi import post_slowly
from tests.server.sidecar import BODIES, ROUTES, Sidecar, sidecar

_CANARY: Final = "kingfisher-7f3a"
_OPEN: Final = {"/health", "/", "/ping", "/readyz", "/livez", "/openapi.json"}
"""What the servers that are imitated leave open, and liveness."""
_ALL: Final = [(dialect, path) for dialect, paths in ROUTES.items() for path in paths]
_KEYS: Final[Mapping[str, dict[str, Any]]] = {
    "acme-key": {"tenant": "acme", "priority": 2},
    "plain-key": {},
    "gateway-key": {"rights": ["rerank", "any-tenant"]},
    "old-key": {"expires": "2001-01-01"},
    "scraper-key": {"rights": ["read"]},
    "operator-key": {"rights": ["read", "operate"]},
}


def _write(path: Path, keys: Mapping[str, dict[str, Any]] = _KEYS) -> Path:
    entries = [{"name": key, "sha256": hash_of(key).hex(), **fields} for key, fields in keys.items()]
    path.write_text(yaml.safe_dump({"keys": entries}), encoding="utf-8")
    return path


def _guarded(folder: Path, **settings: Any) -> Sidecar:
    """Return a sidecar that asks for keys at both listeners."""
    served = sidecar(**settings)
    file, metrics = _write(folder / "keys.yaml"), served.service.metrics.keys
    served.service.access = open_access(file, "public", "keys_file", metrics)
    served.service.admin_access = open_access(file, "admin", "admin_keys_file", metrics)
    return Sidecar(served.service, served.small, served.large)


def _bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


async def test_b4_every_route_but_the_open_ones_asks_for_a_key(tmp_path: Path) -> None:
    """All routes of the application are tried, so that one that is added is guarded or fails here."""
    served = _guarded(tmp_path)
    tried = set()
    for route in public_app(served.service).routes:
        assert isinstance(route, Route)
        for method in sorted((route.methods or set()) - {"HEAD"}):
            answer = await served.public.request(method, route.path, content=b'{"query": "q", "texts": ["a"]}')
            is_open = method == "GET" and route.path in _OPEN
            assert answer.status_code == (200 if is_open else 401), (method, route.path)
            tried.add(route.path)
    assert {route.path for route in rerank_routes("vllm")} | _OPEN | {"/info", "/v1/models"} == tried
    assert not served.small.calls


@pytest.mark.parametrize(("dialect", "path"), _ALL)
@pytest.mark.parametrize("headers", [{}, {"authorization": ""}, _bearer("wrong-key"), _bearer("old-key")])
async def test_b4_a_wrong_key_is_refused_as_each_dialect_refuses_it(
    tmp_path: Path, dialect: str, path: str, headers: dict[str, str]
) -> None:
    """401 with the server's own body, none for TEI; no stage is asked."""
    served = _guarded(tmp_path)
    answer = await served.post(path, BODIES[dialect]("query", ["a"]), headers)
    assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
    match dialect:
        case "tei":
            assert answer.content == b""
        case "native":
            assert answer.json()["code"] == "unauthorized"
        case _:
            assert answer.json()["error"] == "Unauthorized"
    assert not served.small.calls


@pytest.mark.parametrize(("dialect", "path"), _ALL)
async def test_b4_a_right_key_is_let_in_and_one_without_the_right_is_not(
    tmp_path: Path, dialect: str, path: str
) -> None:
    """403 is for a key that is known."""
    served = _guarded(tmp_path)
    body = BODIES[dialect]("query", ["a"])
    assert (await served.post(path, body, _bearer("plain-key"))).status_code == 200
    refused = await served.post(path, body, _bearer("scraper-key"))
    assert refused.status_code == 403
    assert "the key does not allow this" in refused.text


async def test_infinity_refuses_as_infinity_does(tmp_path: Path) -> None:
    """``{"detail": "Unauthorized"}``, and 403 in the form of its other errors."""
    served = _guarded(tmp_path, rerank_dialect="infinity")
    body = BODIES["vllm"]("query", ["a"])
    missing = await served.post("/rerank", body)
    assert (missing.status_code, missing.json()["detail"]) == (401, "Unauthorized")
    refused = await served.post("/rerank", body, _bearer("scraper-key"))
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, 403)


async def test_a_refusal_reads_no_more_of_the_body_than_tells_the_dialect(tmp_path: Path) -> None:
    """What has come of a body that goes on is looked at; the rest is not waited for."""
    served = _guarded(tmp_path)
    app = public_app(served.service)
    tei = await post_slowly(app, "/rerank", b'{"query": "q", "texts": ["')
    assert (tei.status_code, tei.content) == (401, b"")
    vllm = await post_slowly(app, "/rerank", b'{"query": "q", "documents": ["')
    assert (vllm.status_code, vllm.json()["error"]) == (401, "Unauthorized")


async def test_info_and_models_take_any_key(tmp_path: Path) -> None:
    """TEI and vLLM guard them too; without a key each refuses as its server does."""
    served = _guarded(tmp_path)
    info = await served.public.get("/info")
    assert (info.status_code, info.content) == (401, b"")
    models = await served.public.get("/v1/models")
    assert (models.status_code, models.json()["error"]) == (401, "Unauthorized")
    for path in ("/info", "/v1/models"):
        assert (await served.public.get(path, headers=_bearer("scraper-key"))).status_code == 200


async def test_the_admin_listener_asks_for_keys_of_its_own(tmp_path: Path) -> None:
    """Reading and operating are two rights, and every route is guarded, also one that is not there."""
    served = _guarded(tmp_path)
    for path in ("/metrics", "/status", "/no-such-route"):
        assert (await served.admin.get(path)).status_code == 401
        assert (await served.admin.get(path, headers=_bearer("plain-key"))).status_code == 403
    assert (await served.admin.get("/status", headers=_bearer("scraper-key"))).status_code == 200
    assert (await served.admin.post("/status", headers=_bearer("scraper-key"))).status_code == 403
    assert (await served.admin.post("/status", headers=_bearer("operator-key"))).status_code == 405
    told = (await served.admin.get("/metrics", headers=_bearer("scraper-key"))).text
    assert 'cascade_denied_total{listener="admin",why="missing"} 3.0' in told
    assert 'cascade_keys{listener="public"} 5.0' in told


_NATIVE: Final = "/v1/cascade/rerank"


async def _explained(served: Sidecar, key: str, **fields: Any) -> httpx.Response:
    body = {**BODIES["native"]("query", ["a"]), "explain": True, **fields}
    return await served.post(_NATIVE, body, _bearer(key))


async def test_the_tenant_is_the_keys_and_cannot_be_made_up(tmp_path: Path) -> None:
    """Naming one's own tenant is fine, another's is 403; a gateway's key may name any."""
    served = _guarded(tmp_path)
    assert (await _explained(served, "acme-key")).json()["explain"]["tenant"] == "acme"
    assert (await _explained(served, "acme-key", tenant="acme")).json()["explain"]["tenant"] == "acme"
    for key in ("acme-key", "plain-key"):
        refused = await _explained(served, key, tenant="other")
        assert (refused.status_code, refused.json()["field"], refused.json()["code"]) == (403, "tenant", "forbidden")
    assert (await _explained(served, "plain-key")).json()["explain"]["tenant"] is None
    assert (await _explained(served, "gateway-key", tenant="other")).json()["explain"]["tenant"] == "other"


async def test_keys_are_read_again_when_the_file_changes_and_kept_when_it_is_bad(tmp_path: Path) -> None:
    """A key that is taken out opens nothing any more; a file that breaks leaves the last good keys, and says so once."""
    log, path, now = io.BytesIO(), tmp_path / "keys.yaml", [0.0]
    read: list[bool] = []
    configure_logging("info", log)
    access = Access(_write(path, {"one": {}}), "keys_file", now=lambda: now[0], reloaded=read.append)
    assert access.check(_bearer("one"), None).name == "one"
    access.look()
    assert read == []
    _write(path, {"two": {}, "three": {"expires": "1970-01-02"}})
    access.look()
    assert (access.check(_bearer("two"), None).name, access.live) == ("two", 2)
    with pytest.raises(Exception, match="not known"):
        access.check(_bearer("one"), None)
    path.write_text(f"keys: [{_CANARY}", encoding="utf-8")
    access.look()
    access.look()
    path.unlink()
    access.look()
    assert access.check(_bearer("two"), None).name == "two"
    _write(path, {"four": {}})
    os.utime(path, ns=(1, 1))
    access.look()
    assert access.check(_bearer("four"), None).name == "four"
    assert read == [True, False, False, False, True]
    lines = [orjson.loads(line) for line in log.getvalue().splitlines()]
    bad = [line["why"] for line in lines if line["level"] == "error"]
    assert [why.partition(":")[0].partition(" at")[0] for why in bad] == ["not valid YAML", "cannot be read"]
    assert _CANARY.encode() not in log.getvalue()
    _write(path, {"three": {"expires": "1970-01-02"}})
    access.look()
    now[0] = 86_400.0
    with pytest.raises(Exception, match="expired"):
        access.check(_bearer("three"), None)


async def test_a_fault_of_ours_does_not_end_the_looks_at_the_file(tmp_path: Path) -> None:
    """A file whose fault cannot even be logged is one that cannot be used; the next good one is read."""
    path, read = tmp_path / "keys.yaml", asyncio.Queue[bool]()
    loop = asyncio.get_running_loop()
    configure_logging("info", io.BytesIO())
    access = Access(
        _write(path, {"one": {}}),
        "keys_file",
        now=lambda: 0.0,
        reloaded=lambda good: loop.call_soon_threadsafe(read.put_nowait, good),  # type: ignore[arg-type]
    )
    path.write_text(r'{"\ud800": 1, "\ud800": 2}', encoding="utf-8")
    watching = asyncio.create_task(access.watch(0.001))
    try:
        async with asyncio.timeout(10):
            assert not await read.get()
            _write(path, {"two": {}})
            while not await read.get():
                pass
    finally:
        watching.cancel()
    assert access.check(_bearer("two"), None).name == "two"


async def test_a_bad_file_at_the_start_is_an_error_of_the_setting(tmp_path: Path) -> None:
    """Nothing is served with no key where keys were asked for."""
    with pytest.raises(ConfigError, match=r"^keys_file: cannot be read: FileNotFoundError$"):
        async with open_service(Settings(keys_file=tmp_path / "none"), {}):
            pytest.fail("it was served")


@pytest.mark.parametrize(
    ("host", "loopback"),
    [("127.0.0.1", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("::", False), ("pod-1", False)],  # noqa: S104
)
def test_only_this_host_reaches_a_loopback_address(host: str, loopback: bool) -> None:
    """A name may resolve to anything."""
    assert is_loopback(host) is loopback


async def test_g1_a_callers_key_is_never_sent_on(tmp_path: Path) -> None:
    """Whatever form it came in, with keys asked for or not, the server upstream sees nothing of it."""
    upstream = FakeTei()
    keys = _write(tmp_path / "keys.yaml", {_CANARY: {}})
    release = {
        "release": "one-1",
        "depth": 5,
        "escalation": "none",
        "budgets": {"total_ms": 5000, "small_ms": 4000, "large_ms": 100, "reserve_ms": 20},
    }
    path = tmp_path / "release.yaml"
    with listening(upstream) as url:
        path.write_text(
            yaml.safe_dump({**release, "stages": {"small": stage_data("small", url=url)}}), encoding="utf-8"
        )
        for file in (None, keys):
            async with open_service(Settings(release=path, keys_file=file), {}) as service:
                transport = httpx.ASGITransport(public_app(service))
                async with httpx.AsyncClient(transport=transport, base_url="http://sidecar.test") as client:
                    for headers in (_bearer(_CANARY), {"authorization": _CANARY}, {"x-api-key": _CANARY}):
                        body = BODIES["tei"]("query", ["a"])
                        answer = await client.post("/rerank", json=body, headers=headers)
                        assert (answer.status_code, answer.headers["x-cascade-stage"]) == (200, "small")
    assert len(upstream.posts) == 6
    for seen in upstream.seen:
        assert "authorization" not in seen.headers
        assert "x-api-key" not in seen.headers
        assert _CANARY not in str(replace(seen))
