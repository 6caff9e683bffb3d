"""``cascade doctor``."""

from __future__ import annotations

import json

from tests.cli.conftest import Command, WriteRelease

_DOWN = {"adapter": "tei", "url": "http://127.0.0.1:9", "model": "m", "engine": "tei/1.9", "connect_ms": 50}


def test_the_default_release_is_well(command: Command) -> None:
    """Both embedded stages score right, are timed, and the exit status is 0."""
    done = command("doctor")
    assert (done.status, done.err) == (0, "")
    assert done.out.count("scoring  ok") == 2
    assert done.out.count("latency  1: ") == 2


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
