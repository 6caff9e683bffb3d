"""Releases reach traffic over real sockets and real processes, in steps, and come back by themselves."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from cascade.testing.upstream import FakeTei
from tests.e2e.processes import Process, listening, serving, write_yaml
from tests.e2e.rollouts import (
    asking,
    happened,
    known,
    replaced,
    reversed_scores,
    server,
    two_stages,
    until,
    variables,
    worth,
)

_WIDE = {"late": 0.3, "errors": 0.3, "fallback": 0.3}
_TURNS = (("even", 2), ("odd", 3))


def _escalates(top_m: int) -> dict[str, Any]:
    return {"kind": "static", "top_m": top_m}


class Failing(FakeTei):
    """Answer the pairs of a probe, and passages with an error."""

    def post(self, path: str, body: Any, size: int) -> httpx.Response:
        if any(text.startswith("passage ") for text in body["texts"]):
            return httpx.Response(500, json={"error": "out of memory", "error_type": "Backend"})
        return super().post(path, body, size)


@dataclass(frozen=True, slots=True)
class Running:
    """A sidecar that watches ``release``, and reranker servers: right ones, one that turns scores round, one that fails."""

    process: Process
    release: Path
    state: Path
    small: str
    large: str
    turned: str
    failing: str

    def page(self, name: str, guardrails: Mapping[str, float], small: str = "", **fields: Any) -> dict[str, Any]:
        """Return a release over the right servers, or over another small one."""
        return two_stages(name, small or self.small, self.large, guardrails, **fields)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Serve for all tests of this module that stop nothing: each rolls a release of its own out."""
    folder = tmp_path_factory.mktemp("rollout")
    with ExitStack() as stack:
        fakes = (server(), server(), server(reversed_scores), Failing(score_of=worth))
        small, large, turned, failing = [stack.enter_context(listening(fake)) for fake in fakes]
        for name, top_m in _TURNS:
            (folder / "releases" / name).mkdir(parents=True)
            write_yaml(
                folder / "releases" / name / "release.yaml",
                two_stages(name, small, large, _WIDE, escalation=_escalates(top_m)),
            )
        release = write_yaml(folder / "release.yaml", two_stages("first", small, large, _WIDE))
        process = _serving(stack, folder, release, releases_folder=str(folder / "releases"))
        yield Running(process, release, folder / "state", small, large, turned, failing)


def _serving(stack: ExitStack, folder: Path, release: Path, **more: str) -> Process:
    folder.mkdir(exist_ok=True)
    return stack.enter_context(serving(folder, "--release", str(release), **variables(folder / "state", **more)))


def test_a_good_release_goes_through_its_steps_to_all_traffic(running: Running) -> None:
    """It is found in the folder, gets its shares, and after the last step decides everything; no request fails."""
    process = running.process
    with asking(process) as clients:
        replaced(running.release, running.page("good", _WIDE, escalation=_escalates(4)))
        until(lambda: ("completed", "good") in happened(process), "all traffic")
        before = clients.releases["good", "stable"]
        until(lambda: clients.releases["good", "stable"] > before + 20, "answers of the new release")
        completed = _entry(running, "completed", "good")
    assert [what for what, release in happened(process) if release == "good"] == ["started", "advanced", "completed"]
    assert set(clients.statuses) == {200}
    assert not clients.faults
    assert clients.releases["good", "canary"] >= 20
    assert {each["verdict"] for each in completed["evidence"]["guardrails"]} == {"pass"}
    assert known(running.state)["stable"]["release"] == "good"


def test_a_release_that_orders_worse_is_rolled_back(running: Running) -> None:
    """Its small stage turns scores round, which no probe tells: the ranking loss of shadow pairs does."""
    process, rollout = running.process, {"shadow": {"share": 1.0}, "min_queries": 100_000}
    with asking(process, threads=1, apart_s=0.01) as clients:  # what nobody waits for takes the room that is left over
        replaced(running.release, running.page("turned", {"ranking_loss": 0.05}, running.turned, rollout=rollout))
        until(lambda: ("rolled_back", "turned") in happened(process), "the roll back")
        time.sleep(0.2)  # what was under way then has ended
        before = clients.releases["turned", "canary"]
        time.sleep(0.3)
        assert clients.releases["turned", "canary"] == before
        (evidence,) = _entry(running, "rolled_back", "turned")["evidence"]["guardrails"]
        metrics = httpx.get(f"{process.admin}/metrics", trust_env=False).text
    assert set(clients.statuses) == {200}
    assert (evidence["name"], evidence["verdict"]) == ("ranking_loss", "fail")
    assert evidence["difference"] > 0.2
    for counter in ('cascade_shadow_total{outcome="compared"}', 'cascade_rollouts_total{outcome="rolled_back"}'):
        (value,) = (line.rpartition(" ")[2] for line in metrics.splitlines() if line.startswith(counter))
        assert float(value) > 0, counter
    kept = known(running.state)
    assert (kept["stable"]["release"] != "turned", kept["refused"]["step"]) == (True, "rolled_back")


def test_a_release_whose_server_fails_is_rolled_back(running: Running) -> None:
    """It asks for an error in place of a degraded answer: the guardrail of errors ends it at its first share."""
    process = running.process
    with asking(process) as clients:
        replaced(running.release, running.page("failing", {"errors": 0.01}, running.failing, fallback="error"))
        until(lambda: ("rolled_back", "failing") in happened(process), "the roll back")
        time.sleep(0.2)  # what was under way then has ended
        before = clients.statuses[503]
        time.sleep(0.3)
        (evidence,) = _entry(running, "rolled_back", "failing")["evidence"]["guardrails"]
    assert [what for what, release in happened(process) if release == "failing"] == ["started", "rolled_back"]
    assert set(clients.statuses) == {200, 503}
    assert 0 < clients.statuses[503] == before
    assert (evidence["name"], evidence["verdict"]) == ("errors", "fail")


def test_fifty_activations_under_load_fail_no_request(running: Running) -> None:
    """Two releases take turns, each at once after all steps; every request is answered in full, and nothing is left."""
    process = running.process
    with asking(process) as clients, httpx.Client(base_url=process.admin, trust_env=False, timeout=20) as admin:
        until(lambda: clients.statuses[200] > 10, "answers")
        held, before = _descriptors(process), _swapped(admin)
        serves = admin.get("/rollout").json()["stable"]["release"]
        for number in range(50):
            name = _TURNS[(number + (serves == "even")) % 2][0]
            told = admin.post("/rollout", json={"release": name, "at_once": True})
            assert told.status_code == 200, told.text
            assert told.json()["stable"]["release"] == name
        # connections of the traffic come and go, more of them on a busy machine; one that each activation left would be 50
        until(lambda: _descriptors(process) <= held + 25, "what the old ones held is given back")
        assert _swapped(admin) == before + 50
        assert admin.get("/metrics").text.count("cascade_release_info{") == 1
    assert set(clients.statuses) == {200}
    assert not clients.faults
    assert min(clients.releases[name, "stable"] for name, _ in _TURNS) > 10


def test_h1_processes_that_share_a_folder_converge(running: Running, tmp_path: Path) -> None:
    """Both find what is desired, decide arms alike, and end at the same release."""
    with ExitStack() as stack:
        release = write_yaml(tmp_path / "release.yaml", running.page("r1", _WIDE))
        processes = [_serving(stack, tmp_path / name, release) for name in ("one", "other")]
        both = [stack.enter_context(asking(process, threads=2)) for process in processes]
        replaced(release, running.page("shared", _WIDE, rollout={"steps": [50, 100]}))
        until(lambda: all(("completed", "shared") in happened(each) for each in processes), "both at the release")
        active = {httpx.get(f"{each.admin}/status", trust_env=False).json()["digest"] for each in processes}
    assert len(active) == 1
    assert all(set(clients.statuses) == {200} for clients in both)


def test_h2_a_kill_during_activation_starts_on_the_last_good_release(running: Running, tmp_path: Path) -> None:
    """The release being activated hangs at its probe when the process is killed; the next one serves the one before."""
    hanging, state = server(), tmp_path / "one" / "state"
    with ExitStack() as stack:
        url = stack.enter_context(listening(hanging))
        release = write_yaml(tmp_path / "release.yaml", running.page("r1", _WIDE))
        process = _serving(stack, tmp_path / "one", release)
        hanging.hangs = True
        replaced(release, running.page("r2", _WIDE, url))
        until(lambda: bool(hanging.posts), "the probe")
        assert process.stop(signal.SIGKILL) == -signal.SIGKILL
        assert (known(state)["state"], known(state)["stable"]["release"]) == ("activating", "r1")
        hanging.hangs = False
        again = _serving(stack, tmp_path / "one", release)
        assert [each["release"] for each in again.events() if each["event"] == "serving"] == ["r1"]
        with asking(again) as clients:  # what it asks for answers by now: it is tried again, and comes in
            until(lambda: clients.releases["r2", "canary"] > 0, "the candidate")
    assert set(clients.statuses) == {200}
    assert clients.releases["r1", "stable"] > 0


def test_a_candidate_under_which_the_process_is_killed_twice_is_taken_back(running: Running, tmp_path: Path) -> None:
    """Each time once it had answered; the third start serves the stable release alone, and says why."""
    state = tmp_path / "one" / "state"
    with ExitStack() as stack:
        release = write_yaml(tmp_path / "release.yaml", running.page("r1", _WIDE))
        for _ in range(2):
            process = _serving(stack, tmp_path / "one", release)
            replaced(release, running.page("r2", _WIDE, rollout={"min_queries": 1_000_000}))
            _answers_as_canary(process, "r2")
            until(lambda: known(state)["state"] == "running", "that it is written down")
            assert process.stop(signal.SIGKILL) == -signal.SIGKILL
        process = _serving(stack, tmp_path / "one", release)
        until(lambda: ("rolled_back", "r2") in happened(process), "the roll back")
        told = httpx.get(f"{process.admin}/rollout", trust_env=False).json()
    assert (told["state"], told["stable"]["release"], told["candidate"]) == ("rolled_back", "r1", None)
    assert told["refused"]["why"] == ["the process was killed 2 times in a row while it was activated or tried"]
    assert [each["what"] for each in known(state)["history"]] == ["served", "started", "resumed", "rolled_back"]


def test_a_process_that_is_told_to_stop_holds_its_end_against_no_candidate(running: Running, tmp_path: Path) -> None:
    """That is written down at once: who told it may not wait for the drain."""
    state = tmp_path / "one" / "state"
    with ExitStack() as stack:
        release = write_yaml(tmp_path / "release.yaml", running.page("r1", _WIDE))
        process = _serving(stack, tmp_path / "one", release, drain_seconds="60")
        replaced(release, running.page("r2", _WIDE))
        until(lambda: ("started", "r2") in happened(process), "the candidate")
        until(lambda: known(state)["state"] == "running", "that it is written down")
        assert known(state)["candidate"]["attempts"] == 1
        process.popen.terminate()
        until(lambda: known(state)["candidate"]["attempts"] == 0, "that it is told to stop is written down")
        assert process.popen.poll() is None


def _answers_as_canary(process: Process, release: str) -> None:
    with asking(process) as clients:
        until(lambda: clients.releases[release, "canary"] > 0, "answers of the candidate")


def _entry(running: Running, what: str, release: str) -> dict[str, Any]:
    """Return what the history on disk has of something that happened to a release, once it is there."""

    def found() -> list[dict[str, Any]]:
        history: list[dict[str, Any]] = known(running.state)["history"]
        return [each for each in history if (each["what"], each["release"]) == (what, release)]

    until(lambda: bool(found()), "the history on disk")
    return found()[-1]


def _swapped(admin: httpx.Client) -> float:
    lines = admin.get("/metrics").text.splitlines()
    return sum(
        float(line.rpartition(" ")[2])
        for line in lines
        if line.startswith('cascade_activations_total{outcome="swapped"}')
    )


def _descriptors(process: Process) -> int:
    return len(list(Path(f"/proc/{process.popen.pid}/fd").iterdir()))
