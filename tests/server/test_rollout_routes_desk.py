"""The routes over the real desk, which moves made-up traffic."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from cascade.errors import ConfigError
from cascade.policy.release import parse_release
from cascade.rollout.activation import ActivationStep
from cascade.rollout.foreseen import foreseen
from cascade.rollout.store import Stored
from tests.rollout.desk_fakes import Setup, release_data, write_release
from tests.server.sidecar import Sidecar, release_of, sidecar


@asynccontextmanager
async def _served(folder: Path) -> AsyncIterator[tuple[Sidecar, Setup]]:
    setup = Setup(folder)
    try:
        yield sidecar(desk=setup.desk), setup
    finally:
        await setup.desk.aclose()
        await setup.traffic.stable.aclose()


async def test_a_rollout_is_started_promoted_and_aborted_over_http(tmp_path: Path) -> None:
    """Traffic follows, evidence is asked for unless forced, and the history has it all."""
    async with _served(tmp_path) as (served, setup):
        digest = setup.write("r2").digest
        started = await served.admin.post("/rollout", json={"release": "r2"})
        told = started.json()
        assert (started.status_code, told["state"], told["share"]) == (200, "running", 0.01)
        assert told["candidate"]["digest"] == digest
        assert setup.traffic.share == 0.01
        refused = await served.admin.post("/rollout/promote", json={})
        assert refused.status_code == 409
        assert refused.json()["error"] == "not shown yet: errors; --force goes on all the same (over HTTP force: true)"
        promoted = await served.admin.post("/rollout/promote", json={"force": True})
        assert promoted.json()["share"] == setup.traffic.share == 0.25
        again = await served.admin.post("/rollout", json={"release": digest})
        assert (again.status_code, again.json()["step"]) == (409, None)
        aborted = await served.admin.post("/rollout/abort", json={"reason": "an alert"})
        told = aborted.json()
        assert (told["state"], told["candidate"], told["refused"]["why"]) == ("aborted", None, ["an alert"])
        assert setup.traffic.candidate is None
        history = (await served.admin.get("/rollout/history")).json()["history"]
        assert [each["what"] for each in history] == ["aborted", "promoted", "started", "served"]
        assert (await served.admin.get("/rollout")).json() == told


async def test_a_release_that_cannot_be_used_is_refused_with_its_step(tmp_path: Path) -> None:
    """The old one serves on; an unknown one is refused without a step."""
    async with _served(tmp_path) as (served, setup):
        setup.write("r2", {"faults": {ActivationStep.START: ConfigError("no such model")}})
        answer = await served.admin.post("/rollout", json={"release": "r2"})
        told = answer.json()
        assert (answer.status_code, told["step"], told["why"]) == (409, "start", ["no such model"])
        assert (await served.admin.get("/rollout")).json()["state"] == "refused"
        answer = await served.admin.post("/rollout", json={"release": "r3"})
        assert (answer.status_code, answer.json()["error"]) == (409, "no release of this name")
        answer = await served.admin.post("/rollout/bundles", content=b"", headers={"content-type": "application/x-tar"})
        assert answer.json()["error"].startswith("a bundle is taken only where release_keys_file is set")
        answer = await served.admin.get("/rollout/foreseen?release=r2")
        assert answer.json()["error"] == "what a release will have to show is not told here"


def _foreseen(stored: Stored, per_s: float, **stable: Any) -> dict[str, Any]:
    return foreseen(release_of(**stable), stored, per_s)


def test_what_must_be_shown_is_told_from_the_release_and_the_stable_one(tmp_path: Path) -> None:
    """Its steps and limits, what its first step will wait for, and in how many seconds harm is met."""
    rollout = {"steps": [2, 100], "min_queries": 40, "min_seconds": 5, "guardrails": {"drift_psi": None, "cost": None}}
    stored = write_release(tmp_path, "r2", rollout=rollout)
    told = foreseen(parse_release(release_data("r1")), stored, 20.0)
    assert (told["release"], told["digest"], told["steps"]) == ("r2", stored.digest, [2.0, 100.0])
    assert (told["min_queries"], told["min_seconds"], told["alpha"], told["shadow_share"]) == (40, 5.0, 0.05, 0.05)
    assert told["limits"] == {
        "late": 0.01,
        "errors": 0.005,
        "fallback": 0.02,
        "escalation": 0.1,
        "cost": None,
        "ranking_loss": 0.01,
        "drift_psi": None,
    }
    assert told["waits_for"][:2] == ["time: 0 s of 5", "answers of the candidate: 0 of 40"]
    assert "the stable large stage cannot judge" in told["waits_for"][-1]
    late = next(row for row in told["rollback_within"] if (row["guardrail"], row["harm"]) == ("late", 0.5))
    assert late["share"] == 0.02
    assert late["queries"] / (0.02 * 20.0) < late["seconds"] < 2 * late["queries"] / (0.02 * 20.0)
    assert told["requests_per_s"] == 20.0


def test_without_traffic_answers_are_told_and_no_seconds(tmp_path: Path) -> None:
    """Nothing is known of how soon they come."""
    told = _foreseen(write_release(tmp_path), 0.0)
    assert {row["seconds"] for row in told["rollback_within"]} == {None}
    assert all(row["queries"] > 0 for row in told["rollback_within"] if row["queries"] is not None)
    assert told["requests_per_s"] == 0.0


def test_what_is_no_release_is_not_foreseen(tmp_path: Path) -> None:
    """The error names the file."""
    path = tmp_path / "r2.yaml"
    path.write_text("release: r2\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"r2\.yaml"):
        _foreseen(Stored("sha256:" + "0" * 64, "r2", path), 1.0)
