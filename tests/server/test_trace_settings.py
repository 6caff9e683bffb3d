"""Settings of traces."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
import yaml

from cascade.errors import ConfigError
from cascade.server.app import public_app
from cascade.server.building import open_service
from cascade.server.settings import Settings, load_settings
from cascade.server.tracing import check_tracing
from cascade.telemetry.span_schema import ATTRIBUTES
from cascade.telemetry.spans import MOST_SPANS
from tests.telemetry.collector import collecting

_BARE: Final[dict[str, Any]] = {
    "release": "bare-1",
    "stages": {},
    "depth": 0,
    "escalation": "none",
    "budgets": {"total_ms": 1000, "small_ms": 100, "large_ms": 100, "reserve_ms": 10},
}


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("OTEL_")]:
        monkeypatch.delenv(name)


@asynccontextmanager
async def _served(folder: Path, **settings: Any) -> AsyncIterator[httpx.AsyncClient]:
    """Serve a release without stages, as settings say."""
    release = folder / "release.yaml"
    release.write_text(yaml.safe_dump(_BARE), encoding="utf-8")
    async with open_service(Settings(release=release, **settings)) as service:
        service.ready = True
        transport = httpx.ASGITransport(public_app(service))
        async with httpx.AsyncClient(transport=transport, base_url="http://sidecar.test") as client:
            yield client


async def test_spans_of_a_service_reach_its_collector_before_it_has_ended(tmp_path: Path) -> None:
    """As its settings say, with the headers of a file."""
    (tmp_path / "headers").write_text("x-key: secret\n", encoding="utf-8")
    with collecting() as collector:
        settings = {"trace_endpoint": collector.url, "trace_headers_file": tmp_path / "headers", "trace_queue": 600}
        async with _served(tmp_path, tracing="otlp", **settings) as client:
            for _ in range(3):
                assert (await client.post("/rerank", json={"query": "a", "texts": ["b"]})).status_code == 200
    assert [span.name for span in collector.spans] == ["admission", "depth", "rerank"] * 3
    assert {head["x-key"] for head in collector.heads} == {"secret"}


async def test_opentelemetry_s_switch_turns_traces_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever settings say."""
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    with collecting() as collector:
        async with _served(tmp_path, tracing="otlp", trace_endpoint=collector.url) as client:
            assert (await client.post("/rerank", json={"query": "a", "texts": ["b"]})).status_code == 200
    assert collector.bodies == []


def test_every_attribute_is_set_somewhere() -> None:
    """What is listed and never set would be a promise that is not kept."""
    root = Path(__file__).parents[2] / "cascade"
    written = "".join(path.read_text(encoding="utf-8") for path in root.rglob("*.py") if path.name != "span_schema.py")
    assert {name.name for name in ATTRIBUTES if f"Attribute.{name.name}" not in written} == set()


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"trace_endpoint": "collector:4318"}, "trace_endpoint"),
        ({"trace_endpoint": "http://kingfisher:secret@collector:4318"}, "no credential"),
        ({"trace_endpoint": "http://collector:4318/?key=kingfisher"}, "no credential"),
        ({"trace_endpoint": "http://[kingfisher"}, "trace_endpoint"),
        ({"trace_endpoint": "http://[kingfisher]/"}, "trace_endpoint"),
        ({"trace_endpoint": "http://user:kingfisher@ex\u2100mple.test"}, "trace_endpoint"),
        ({"trace_endpoint": "http://collector:kingfisher"}, "trace_endpoint"),
        ({"trace_endpoint": "http://collector:99999"}, "trace_endpoint"),
        ({"trace_ratio": 1.5}, "trace_ratio"),
        ({"trace_keep": "degraded,kingfisher"}, "trace_keep"),
        ({"trace_keep": "slow"}, "trace_slow_ms"),
        ({"trace_slow_ms": 5}, "trace_slow_ms"),
        ({"tracing": "kingfisher"}, "tracing"),
        ({"trace_queue": 3}, "trace_queue"),
    ],
)
def test_settings_that_cannot_be_are_refused(values: dict[str, Any], told: str) -> None:
    """The error names the setting, and does not repeat what may be a secret."""
    with pytest.raises(ConfigError, match=told) as raised:
        load_settings(values, environment={})
    assert "kingfisher" not in str(raised.value)


def test_the_smallest_queue_has_room_for_the_largest_trace() -> None:
    """Else such a trace would be dropped by a queue that is empty."""
    assert Settings(trace_queue=MOST_SPANS).trace_queue == MOST_SPANS
    with pytest.raises(ConfigError, match="trace_queue"):
        load_settings({"trace_queue": MOST_SPANS - 1}, environment={})


def test_settings_of_the_environment_are_read() -> None:
    """A list in one string, and YAML's bare off."""
    variables = {"CASCADE__TRACING": "otlp", "CASCADE__TRACE_KEEP": "slow, degraded", "CASCADE__TRACE_SLOW_MS": "50"}
    settings = load_settings({}, environment=variables)
    assert (settings.tracing, settings.trace_keep, settings.trace_slow_ms) == ("otlp", ("slow", "degraded"), 50.0)
    assert load_settings({"tracing": False}, environment={}).tracing == "off"


@pytest.mark.parametrize(
    ("write", "told"),
    [
        (None, "cannot be read"),
        (b"\xff", "cannot be read"),
        (b"authorization: Bearer 1\nkingfisher", "line 2"),
        (b"kingfisher\xc3\xbc: 1", "line 1"),
    ],
)
def test_a_file_of_headers_that_cannot_be_used_is_an_error(tmp_path: Any, write: bytes | None, told: str) -> None:
    """It repeats nothing of the file; a good one is taken."""
    file = tmp_path / "headers"
    if write is not None:
        file.write_bytes(write)
    with pytest.raises(ConfigError, match=told) as raised:
        check_tracing(Settings(tracing="otlp", trace_headers_file=file))
    assert "kingfisher" not in str(raised.value)
    file.write_bytes(b"authorization: Bearer 1\n\n  x-key :2 \n")
    check_tracing(Settings(tracing="otlp", trace_headers_file=file))
