"""Records from settings to the file."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest
import yaml

from cascade.errors import ConfigError
from cascade.replay.record_files import lines_of
from cascade.server.app import public_app
from cascade.server.building import open_service
from cascade.server.service import Service
from cascade.server.settings import Settings
from cascade.telemetry.logs import configure_logging
from cascade.testing.upstream import FakeTei
from tests.e2e.processes import listening

_KEY = b"a key of sixteen bytes"


class _Upstreams:
    """Two reranker servers and a release over them."""

    def __init__(self, stack: ExitStack, folder: Path, mode: str) -> None:
        self.small, self.large = FakeTei(), FakeTei()
        urls = [stack.enter_context(listening(server)) for server in (self.small, self.large)]
        stage = {"adapter": "tei", "engine": "tei/1.9"}
        release = {
            "release": "r1",
            "mode": mode,
            "stages": {
                "small": {**stage, "url": urls[0], "model": "little"},
                "large": {**stage, "url": urls[1], "model": "big"},
            },
            "depth": 5,
            "escalation": {"kind": "static", "top_m": 1},
            "budgets": {"total_ms": 30_000, "small_ms": 20_000, "large_ms": 20_000, "reserve_ms": 100},
        }
        self.release = folder / "release.yaml"
        self.release.write_text(yaml.safe_dump(release), encoding="utf-8")
        self.key = folder / "key"
        self.key.write_bytes(_KEY)
        self.records = folder / "records.jsonl"

    def settings(self, **changes: Any) -> Settings:
        """Return settings with a file of records."""
        return Settings(
            release=self.release, **({"query_hash_key_file": self.key, "record_file": self.records} | changes)
        )

    def lines(self) -> list[dict[str, Any]]:
        """Return what was recorded."""
        return [orjson.loads(line) for line in self.records.read_bytes().splitlines()]


@asynccontextmanager
async def _serving(settings: Settings) -> AsyncIterator[tuple[Service, httpx.AsyncClient]]:
    async with open_service(settings, {}) as service:
        transport = httpx.ASGITransport(public_app(service))
        async with httpx.AsyncClient(transport=transport, base_url="http://sidecar.test") as client:
            yield service, client


async def _ask(client: httpx.AsyncClient, query: str, documents: list[str]) -> httpx.Response:
    return await client.post("/v1/rerank", json={"query": query, "documents": documents})


async def _counted(service: Service, name: str, value: float) -> None:
    """Wait until a counter has come to a value."""
    async with asyncio.timeout(30):
        while service.metrics.registry.get_sample_value(name) != value:  # noqa: ASYNC110 - a thread counts
            await asyncio.sleep(0.001)


async def test_observed_requests_are_in_the_file_when_the_service_ends(tmp_path: Path) -> None:
    """The large stage answers, the small one scores beside, and the head tells what both servers said of themselves."""
    with ExitStack() as stack:
        upstreams = _Upstreams(stack, tmp_path, "observe")
        async with _serving(upstreams.settings()) as (service, client):
            assert service.records
            answer = await _ask(client, "blue bird", ["bird", "fish", "blue bird"])
            assert [item["index"] for item in answer.json()["results"]] == [2, 0, 1]
            assert answer.headers["x-cascade-stage"] == "large"
            await _counted(service, "cascade_records_total", 1)
        head, line = upstreams.lines()
    assert head["scorers"]["large"]["fingerprint"]["model"] == "big"
    assert head["scorers"]["small"]["observed"]["version"] == "1.9.0"
    assert line["decision_id"] == answer.headers["x-cascade-decision-id"]
    assert line["beside"] == "ok"
    assert [score is None for score in line["small"] + line["large"]] == [False] * 6
    assert line["would"]["escalated"] == [2]
    assert service.metrics.registry.get_sample_value("cascade_beside_total", {"outcome": "ok"}) == 1


async def test_each_query_of_a_body_is_recorded(tmp_path: Path) -> None:
    """A body of several queries is several decisions."""
    with ExitStack() as stack:
        upstreams = _Upstreams(stack, tmp_path, "cascade")
        async with _serving(upstreams.settings()) as (service, client):
            await client.post("/v1/score", json={"text_1": ["bird", "fish"], "text_2": ["a bird", "a fish"]})
            await _counted(service, "cascade_records_total", 2)
        _, *lines = upstreams.lines()
    assert len({line["query_hash"] for line in lines}) == 2
    assert [line["candidates"] for line in lines] == [1, 1]


async def test_one_key_gives_one_hash_over_restarts(tmp_path: Path) -> None:
    """The same query and document can be joined; with keys drawn at the start they cannot."""
    with ExitStack() as stack:
        upstreams = _Upstreams(stack, tmp_path, "cascade")
        for changes in ({}, {}, {"query_hash_key_file": None}):
            async with _serving(upstreams.settings(**changes)) as (_, client):
                await _ask(client, "bird", ["a bird"])
        lines = [line for line in upstreams.lines() if line["kind"] == "decision"]
    assert len(lines) == 3
    hashes = [(line["query_hash"], *line["ids"]) for line in lines]
    assert hashes[0] == hashes[1]
    assert not set(hashes[0]) & set(hashes[2])


async def test_what_is_not_sampled_is_neither_scored_beside_nor_recorded(tmp_path: Path) -> None:
    """A share of nothing records nothing, and the small server is left alone."""
    with ExitStack() as stack:
        upstreams = _Upstreams(stack, tmp_path, "observe")
        async with _serving(upstreams.settings(record_sample=0.0)) as (_, client):
            await _ask(client, "bird", ["a bird", "fish"])
        assert upstreams.lines() == []
        assert upstreams.small.posts == []


async def test_without_a_file_nothing_is_recorded(tmp_path: Path) -> None:
    """The small stage of mode observe is then not asked either."""
    with ExitStack() as stack:
        upstreams = _Upstreams(stack, tmp_path, "observe")
        async with _serving(upstreams.settings(record_file=None)) as (service, client):
            assert not service.records
            await _ask(client, "bird", ["a bird", "fish"])
        assert upstreams.small.posts == []


async def test_a_service_that_ends_cancels_what_is_scored_beside_and_records_the_rest(tmp_path: Path) -> None:
    """A small server that hangs keeps nobody, and the large scores are kept."""
    with ExitStack() as stack:
        upstreams = _Upstreams(stack, tmp_path, "observe")
        async with _serving(upstreams.settings()) as (service, client):
            upstreams.small.hangs = True
            await _ask(client, "bird", ["a bird", "fish"])
            while not upstreams.small.posts:  # noqa: ASYNC110 - another thread serves it
                await asyncio.sleep(0.001)
        _, line = upstreams.lines()
    assert (line["beside"], line["small"]) == ("stage_timeout", [None, None])
    assert None not in line["large"]
    assert service.metrics.registry.get_sample_value("cascade_beside_total", {"outcome": "stage_timeout"}) == 1


async def test_a_file_of_records_that_cannot_be_opened_stops_the_start(tmp_path: Path) -> None:
    """Whoever asks for records learns before serving that there will be none."""
    with ExitStack() as stack:
        upstreams = _Upstreams(stack, tmp_path, "observe")
        with pytest.raises(ConfigError, match=r"record_file .*/none/r\.jsonl: cannot be used: No such file"):
            async with _serving(upstreams.settings(record_file=tmp_path / "none" / "r.jsonl")):
                pass


@pytest.mark.parametrize("name", ["r.jsonl", "r.parquet"])
async def test_two_processes_do_not_write_one_file_of_records(tmp_path: Path, name: str) -> None:
    """The second start is refused, and what the first writes stays; after its end another may."""
    with ExitStack() as stack:
        upstreams = _Upstreams(stack, tmp_path, "observe")
        settings = upstreams.settings(record_file=tmp_path / name)
        async with _serving(settings) as (service, client):
            with pytest.raises(ConfigError, match=rf"^record_file .*/{name} is in use by another process; give each"):
                async with _serving(settings):
                    pass
            await _ask(client, "bird", ["a bird", "fish"])
            await _counted(service, "cascade_records_total", 1)
        async with _serving(settings):
            pass


async def test_parquet_is_written_where_the_name_says_so(tmp_path: Path) -> None:
    """The head and the decision are there at the end, in the file that is open, and in Parquet once that is closed."""
    record_file = tmp_path / "records.parquet"
    with ExitStack() as stack:
        upstreams = _Upstreams(stack, tmp_path, "cascade")
        settings = upstreams.settings(record_file=record_file, record_max_bytes=3000)
        for times in (1, 3):
            async with _serving(settings) as (service, client):
                for _ in range(times):
                    answer = await _ask(client, "bird", ["a bird", "fish"])
                await _counted(service, "cascade_records_total", times)
    files = sorted(tmp_path.glob("records.*"))  # noqa: ASYNC240 - a test's own folder
    assert [path.name for path in files] == ["records.1.parquet", "records.open.jsonl", "records.parquet"]
    told = [orjson.loads(line) for path in files for line in lines_of(path)]
    ids = {line["decision_id"] for line in told if line["kind"] == "decision"}
    assert len(ids) == 4
    assert answer.headers["x-cascade-decision-id"] in ids
    for path in (files[0], files[2]):
        assert next(orjson.loads(line)["kind"] for line in lines_of(path)) == "head"


async def test_parquet_of_one_file_stops_the_start(tmp_path: Path) -> None:
    """There would be nothing but what is open."""
    with ExitStack() as stack:
        upstreams = _Upstreams(stack, tmp_path, "cascade")
        settings = upstreams.settings(record_file=tmp_path / "r.parquet", record_files=1)
        with pytest.raises(ConfigError, match="record_files: of Parquet two at least are kept"):
            async with _serving(settings):
                pass


@pytest.mark.parametrize("name", ["records.jsonl", "records.parquet"])
async def test_a_text_in_every_field_is_in_no_record(tmp_path: Path, name: str) -> None:
    """Queries, documents and ids leave no trace, whatever the dialect, in lines or in Parquet."""
    canary = "kingfisher 7f3a"
    configure_logging("error", io.BytesIO())
    bodies: dict[str, dict[str, Any]] = {
        "/v1/cascade/rerank": {
            "query": canary,
            "candidates": [{"id": canary, "text": canary, "scores": {"bm25": 2.0}}],
        },
        "/rerank": {"query": canary, "texts": [canary, f"{canary} {canary}"]},
        "/v1/rerank": {"query": canary, "documents": [canary], "user": canary},
        "/v1/score": {"text_1": [canary, "x"], "text_2": [canary, canary]},
    }
    with ExitStack() as stack:
        upstreams = _Upstreams(stack, tmp_path, "observe")
        settings = upstreams.settings(record_file=tmp_path / name, record_max_bytes=4000, record_files=9)
        async with _serving(settings) as (service, client):
            for path, body in bodies.items():
                response = await client.post(path, json=body, headers={"x-request-id": canary})
                assert response.status_code == 200, path
            await _counted(service, "cascade_records_total", 5)
    files = [*tmp_path.glob("records.*")]  # noqa: ASYNC240 - a test's own folder
    lines = b"\n".join(line for path in files for line in lines_of(path))
    assert len(files) > 1
    assert lines.count(b'"kind":"decision"') == 5
    assert b"kingfisher" not in lines + b"".join(path.read_bytes() for path in files)
