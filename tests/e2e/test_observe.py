"""Day one to a calibrated release, with real processes: observe, collect, calibrate, serve."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx
import numpy as np
import orjson
import pytest
import yaml

from cascade.replay.table import data_sha256, read_table
from cascade.testing.upstream import FakeTei, FakeVllm, overlap
from tests.e2e.processes import Process, cascade, listening, serving, write_yaml

_CANARY: Final = "kingfisher"
_QUERIES: Final = 110
_CANDIDATES: Final = 20
_NEW: Final = 40
_TENANTS: Final = ("acme", "umbra")


@dataclass(frozen=True, slots=True)
class Traffic:
    """Queries with candidates in first-stage order; what the rerankers make of a document goes by its text."""

    bodies: tuple[dict[str, Any], ...]
    small: Mapping[str, float]
    large: Mapping[str, float]

    def expected(self, body: Mapping[str, Any], escalated: list[int]) -> list[int]:
        """Return the order of a cascade that escalated these: their block by the large scores, the rest by the small."""
        texts = [candidate["text"] for candidate in body["candidates"]]
        rest = [place for place in range(len(texts)) if place not in escalated]
        block = sorted(escalated, key=lambda place: (-self.large[texts[place]], place))
        return [*block, *sorted(rest, key=lambda place: (-self.small[texts[place]], place))]


def _traffic(count: int, seed: int) -> Traffic:
    """Make queries whose small scores and channels are the large scores with noise."""
    drawn = np.random.default_rng(seed)
    small: dict[str, float] = {}
    large: dict[str, float] = {}
    bodies = []
    for number in range(count):
        truth = drawn.gamma(2.0, 1.5, _CANDIDATES)
        noisy = truth + drawn.normal(0.0, 1.5, _CANDIDATES)
        channels = {
            "bm25": truth + drawn.normal(0.0, 2.5, _CANDIDATES),
            "dense": truth + drawn.normal(0, 3, _CANDIDATES),
        }
        candidates = []
        for place in np.argsort(-channels["bm25"]).tolist():
            text = f"{_CANARY} document {seed}.{number}.{place}"
            small[text], large[text] = float(noisy[place]), float(truth[place])
            scores = {name: float(values[place]) for name, values in channels.items()}
            candidates.append({"id": f"{_CANARY}-{seed}.{number}.{place}", "text": text, "scores": scores})
        query = f"{_CANARY} question number {seed}.{number}"
        bodies.append({"query": query, "candidates": candidates, "tenant": _TENANTS[number % 2], "explain": True})
    return Traffic(tuple(bodies), small, large)


@dataclass(frozen=True, slots=True)
class Servers:
    """A small and a large reranker server on real sockets."""

    small: FakeTei
    large: FakeVllm
    variables: Mapping[str, str]

    def score(self, traffic: Traffic) -> None:
        """Have them score a traffic's documents, and pairs of a probe by shared words."""
        self.small.score_of = lambda query, text: traffic.small.get(text, overlap(query, text))
        self.large.score_of = lambda query, text: traffic.large.get(text, overlap(query, text))


@pytest.fixture
def servers() -> Iterator[Servers]:
    """Have both listen."""
    small, large = FakeTei(), FakeVllm(max_length=8192)
    with listening(small) as small_url, listening(large) as large_url:
        yield Servers(small, large, {"CASCADE_SMALL_URL": small_url, "CASCADE_LARGE_URL": large_url, "LARGE_KEY": "k"})


def _release(path: Path) -> Path:
    """Write the packaged release of mode observe, for the model that the servers say they are and a busy machine."""
    written = yaml.safe_load(cascade("config", "example", "observe", variables={}).stdout)
    for stage in written["stages"].values():
        stage["model"] = "fake/reranker"
    written["budgets"] = {"total_ms": 20_000, "small_ms": 9000, "large_ms": 10_000, "reserve_ms": 100}
    written["depth"] = _CANDIDATES
    return write_yaml(path, written)


def _settings(folder: Path) -> Path:
    key = folder / "key"
    key.write_bytes(b"0123456789abcdef")
    return write_yaml(
        folder / "settings.yaml",
        {"query_hash_key_file": "key", "record_file": "records.jsonl", "record_max_bytes": 100_000, "record_files": 50},
    )


def _ask(process: Process, traffic: Traffic) -> list[dict[str, Any]]:
    with httpx.Client(base_url=process.public, trust_env=False, timeout=60) as client:
        answers = [client.post("/v1/cascade/rerank", json=body) for body in traffic.bodies]
    assert {answer.status_code for answer in answers} == {200}
    return [answer.json() for answer in answers]


def _run(*arguments: object) -> str:
    """Run the command, which must succeed; return what it printed."""
    done = cascade(*map(str, arguments), variables={})
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


def _no_text_in(folder: Path) -> None:
    """Hold everything that was written against the texts of the traffic."""
    for path in folder.rglob("*"):
        if path.is_file():
            assert _CANARY.encode() not in path.read_bytes(), path


@pytest.mark.long
def test_from_observed_traffic_to_a_calibrated_release(tmp_path: Path, servers: Servers) -> None:
    """The large order is answered, records become a table, a calibration and a release, which escalates a share."""
    seen, new = _traffic(_QUERIES, seed=1), _traffic(_NEW, seed=2)
    everything = range(_CANDIDATES)
    arguments = ("--config", str(_settings(tmp_path)))

    servers.score(seen)
    release = _release(tmp_path / "release.yaml")
    with serving(tmp_path, "--release", str(release), *arguments, **servers.variables) as process:
        observed = _ask(process, seen)
        assert process.stop() == 0
    for body, answer in zip(seen.bodies, observed, strict=True):
        assert [item["index"] for item in answer["results"]] == seen.expected(body, list(everything))
        assert (answer["stage"], answer["degraded"], answer["explain"]["depth_reason"]) == ("large", [], "observe")

    records = sorted(tmp_path.glob("records.jsonl*"))
    assert len(records) > 2  # they were rotated
    table = tmp_path / "observed.parquet"
    told = _run("collect", "--from-records", *records, "--out", table)
    assert f"{_QUERIES} queries, {_QUERIES * _CANDIDATES} rows, from {_QUERIES} records" in told
    found = read_table(table)
    assert set(found.scores) == {"bm25", "dense", "small", "large"}
    assert set(found.where("source", "acme").of_queries("q_mode")) == {"observe"}
    texts = [candidate["text"] for candidate in seen.bodies[0]["candidates"]]
    assert sorted(found.scores["large"].tolist()) == pytest.approx(sorted(seen.large.values()), abs=1e-6)
    assert seen.small[texts[0]] == pytest.approx(
        min(found.scores["small"], key=lambda s: abs(s - seen.small[texts[0]]))
    )

    (tmp_path / "calibration").mkdir()
    fitted = tmp_path / "fitted.yaml"
    named = [argument for path in records for argument in ("--from-records", path)]
    _run(
        "calibrate", *named, "--first-stage", "bm25,dense", "--small", "small", "--large", "large",
        "--k", 5, "--out", tmp_path / "calibration" / "observed.json", "--release", release, "--release-out", fitted,
    )  # fmt: skip
    artefact = orjson.loads((tmp_path / "calibration" / "observed.json").read_bytes())
    assert artefact["trained_on"]["queries"] == _QUERIES
    digest = data_sha256(found, ("bm25", "dense", "small", "large"))
    assert f"sha256:{artefact['trained_on']['data_sha256']}" == digest
    assert artefact["large"]["fingerprint"]["engine"] == "vllm/0.32"

    servers.score(new)
    pairs_before = len(servers.large.posts)
    with serving(tmp_path, "--release", str(fitted), *arguments, **servers.variables) as process:
        decided = _ask(process, new)
        assert process.stop() == 0
    assert len(servers.large.posts) > pairs_before
    escalated = [answer["explain"]["escalated"] for answer in decided]
    for body, answer, sent in zip(new.bodies, decided, escalated, strict=True):
        assert (answer["degraded"], answer["explain"]["misfit"]) == ([], None)
        assert answer["explain"]["estimates"]["k"] == 5
        assert [item["index"] for item in answer["results"]] == new.expected(body, sent)
    share = sum(map(len, escalated)) / (_NEW * _CANDIDATES)
    assert 0.05 < share < 0.8
    found_best = [
        new.expected(body, list(everything))[0] in sent for body, sent in zip(new.bodies, escalated, strict=True)
    ]
    assert np.mean(found_best) >= 0.9  # of what it sends, it sends the right ones

    told = _run(
        "collect",
        "--from-records",
        *sorted(tmp_path.glob("records.jsonl*")),
        "--out",
        tmp_path / "all.parquet",
        "--all",
    )
    assert f"{_QUERIES + _NEW} queries" in told
    both = read_table(tmp_path / "all.parquet")
    assert len(both.where("q_mode", "cascade").query_ids) == _NEW
    _no_text_in(tmp_path)


def test_observing_without_a_file_of_records_is_warned_of(tmp_path: Path, servers: Servers) -> None:
    """The log says at the start that nothing is kept, and the large stage answers."""
    with serving(tmp_path, "--release", str(_release(tmp_path / "release.yaml")), **servers.variables) as process:
        traffic = _traffic(1, seed=3)
        servers.score(traffic)
        (answer,) = _ask(process, traffic)
        events = [event["event"] for event in process.events()]
        posts = [body for body in servers.small.posts if _CANARY in str(body)]
    assert "mode observe keeps nothing: record_file is not set" in events
    assert (answer["stage"], posts) == ("large", [])
