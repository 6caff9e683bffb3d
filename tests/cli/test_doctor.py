"""``cascade doctor``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cascade.testing.upstream import FakeTei
from tests.cli.conftest import Command, WriteRelease
from tests.e2e.processes import listening

_DOWN = {"adapter": "tei", "url": "http://127.0.0.1:9", "model": "m", "engine": "tei/1.9", "connect_ms": 50}


def test_a_stage_that_is_well_is_exit_0(command: Command, release: WriteRelease) -> None:
    """It scores right and is timed, and nothing is to be changed."""
    with listening(FakeTei(score_of=lambda query, text: float("Paris" in text) - len(text) / 1000)) as url:
        stage = {"adapter": "tei", "url": url, "model": "fake/reranker", "engine": "tei/1.9", "dtype": "float16"}
        done = command("doctor", "--release", release(stages={"small": {**stage, "revision": "r1"}}, depth=5))
    assert (done.status, done.err) == (0, "")
    assert done.out.count("scoring  ok") == done.out.count("latency  1: ") == 1
    assert done.out.endswith("cache\n  kept in  memory\n")


@pytest.mark.long
def test_the_default_release_is_well(command: Command) -> None:
    """Both embedded stages score right, are timed, and the exit status is 0."""
    done = command("doctor")
    assert (done.status, done.err) == (0, "")
    assert done.out.count("scoring  ok") == 2
    assert done.out.count("latency  1: ") == 2
    assert done.out.count("attention exact") == 1
    assert done.out.endswith("cache\n  kept in  memory\n")


def test_a_stage_that_is_not_there_is_exit_1(command: Command, release: WriteRelease) -> None:
    """The reason and the remedy are told, on stdout, without a traceback."""
    done = command("doctor", "--release", release(stages={"small": _DOWN}, depth=5))
    assert (done.status, done.err) == (1, "")
    assert "scoring  failed (refused)" in done.out
    assert "change   nothing listens at the address" in done.out


def test_json_holds_the_same(command: Command, release: WriteRelease) -> None:
    """For scripts the examination is one JSON object, a key a stage."""
    done = command("doctor", "--json", "--release", release(stages={"small": _DOWN}, depth=5))
    found = json.loads(done.out)
    assert found["small"]["probe"]["code"] == "refused"
    assert found["small"]["observed"] is None
    assert found["cache"] == {"kind": "memory", "why_not": None}


def test_a_redis_that_does_not_answer_is_told(command: Command, release: WriteRelease, tmp_path: Path) -> None:
    """As is a cache that settings do not give what it needs; neither is an exit status, since both cost misses alone."""
    key = tmp_path / "key"
    key.write_bytes(b"sixteen bytes it is")
    path = release(stages={}, depth=0)
    variables = {
        "CASCADE__CACHE": "redis",
        "CASCADE__CACHE_REDIS_URL": "redis://127.0.0.1:9",
        "CASCADE__CACHE_KEY_FILE": str(key),
    }
    done = command("doctor", "--release", path, variables=variables)
    assert (done.status, done.err) == (0, "")
    told = "cache\n  kept in  redis\n  change   the Redis does not answer (ConnectionError): every lookup is a miss\n"
    assert done.out == told
    key.unlink()
    done = command("doctor", "--release", path, variables=variables)
    assert done.out.endswith("change   cache_key_file: cannot be read: FileNotFoundError\n")
