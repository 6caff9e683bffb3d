"""Start and stop, in this process; tests/e2e starts the real one."""

from __future__ import annotations

import asyncio
import gc
import hashlib
import io
import os
import signal
import socket
import threading
from pathlib import Path
from typing import Any, Final

import httpx
import orjson
import pytest
import yaml

from cascade.decision import Level
from cascade.errors import ConfigError
from cascade.rollout.bundle import build_bundle
from cascade.rollout.history import KeptRelease, Remembered, StateFile
from cascade.rollout.store import ReleaseStore
from cascade.server.announcing import announce
from cascade.server.app import public_app
from cascade.server.building import open_service, read_release
from cascade.server.lifecycle import serve
from cascade.server.rollout_start import StateWithStore
from cascade.server.settings import Settings
from cascade.server.status import status
from cascade.testing.upstream import FakeTei
from cascade.types import StageName
from tests.e2e.processes import listening
from tests.rollout.arrange import (
    Written,
    artefact_for,
    digest_for,
    identity_of,
    report_for,
    stage_data,
    write_release,
)
from tests.telemetry.captured import captured_log

_BARE: Final[dict[str, Any]] = {
    "release": "bare-1",
    "stages": {},
    "depth": 0,
    "escalation": "none",
    "budgets": {"total_ms": 1000, "small_ms": 100, "large_ms": 100, "reserve_ms": 10},
}


def _closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as bound:
        return int(bound.getsockname()[1])


def _release(folder: Path, **fields: Any) -> Path:
    path = folder / "release.yaml"
    path.write_text(yaml.safe_dump({**_BARE, **fields}), encoding="utf-8")
    return path


class _Stopper(threading.Thread):
    """Wait for a line, by default 'serving', look around, and end this process's serving by a signal."""

    def __init__(self, log: Path, number: signal.Signals = signal.SIGTERM, *, awaited: str = "serving") -> None:
        super().__init__()
        self._log = log
        self._number = number
        self._awaited = awaited
        self.seen: dict[str, Any] = {}

    def run(self) -> None:
        for _ in range(2000):
            line = self._line()
            if line is not None:
                break
            threading.Event().wait(0.005)
        else:
            return
        try:
            self.seen = line
            with httpx.Client(trust_env=False, timeout=5) as client:
                self.look(client, line["public"], line["admin"])
        finally:
            os.kill(os.getpid(), self._number)

    def look(self, client: httpx.Client, public: str, admin: str) -> None:
        """Keep what the listeners answer."""
        self.seen["ready"] = client.get(f"{public}/readyz").status_code
        self.seen["status"] = client.get(f"{admin}/status").json()
        self.seen["frozen"] = gc.get_freeze_count()

    def _line(self) -> dict[str, Any] | None:
        lines = self._log.read_bytes().splitlines() if self._log.exists() else []
        return next((event for event in map(orjson.loads, lines) if event["event"] == self._awaited), None)


class _EarlyStopper(_Stopper):
    """Look around while the stages start."""

    def look(self, client: httpx.Client, public: str, admin: str) -> None:
        super().look(client, public, admin)
        self.seen["live"] = client.get(f"{public}/livez").status_code
        self.seen["rollout"] = client.get(f"{admin}/rollout").status_code
        self.seen["health"] = client.get(f"{public}/health").status_code
        bodies = {"tei": {"query": "q", "texts": ["a"]}, "vllm": {"query": "q", "documents": ["a"]}}
        self.seen["answers"] = {name: client.post(f"{public}/rerank", json=body) for name, body in bodies.items()}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_h6_serve_runs_until_a_signal(tmp_path: Path, number: signal.Signals, host: str) -> None:
    """Both listeners answer at the addresses of the 'serving' line; a signal ends serving in good order."""
    try:
        socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET).close()
    except OSError:
        pytest.skip("this machine has no such address")
    log = tmp_path / "log"
    settings = Settings(
        release=_release(tmp_path), host=host, port=0, admin_host=host, admin_port=0, log_file=log, drain_seconds=0
    )
    stopper = _Stopper(log, number)
    stopper.start()
    serve(settings)
    stopper.join()
    assert stopper.seen["ready"] == 200
    assert stopper.seen["status"]["release"] == stopper.seen["release"] == "bare-1"
    assert stopper.seen["status"]["digest"] == stopper.seen["digest"]
    events = [orjson.loads(line)["event"] for line in log.read_bytes().splitlines()]
    assert events.index("serving") < events.index("stopping")


def test_the_collector_passes_over_what_was_loaded_while_serving(tmp_path: Path) -> None:
    """A full collection stops the loop: while requests are served it looks only at what they made."""
    log = tmp_path / "log"
    stopper = _Stopper(log)
    stopper.start()
    serve(Settings(release=_release(tmp_path), port=0, admin_port=0, log_file=log, drain_seconds=0))
    stopper.join()
    assert stopper.seen["frozen"] > 10_000
    assert gc.get_freeze_count() == 0


def test_h6_a_signal_ends_a_start_that_waits_for_its_release(tmp_path: Path) -> None:
    """Whoever sends it waits for no address that hangs; nothing has begun that would have to drain."""
    log = tmp_path / "log"
    with socket.create_server(("127.0.0.1", 0)) as nobody:  # whoever connects is never answered
        nobody.settimeout(10)

        def stop() -> None:
            with nobody.accept()[0] as connection:
                os.kill(os.getpid(), signal.SIGTERM)
                connection.settimeout(10)
                while connection.recv(65_536):  # until the other side gives up
                    pass

        stopper = threading.Thread(target=stop)
        stopper.start()
        release = f"http://127.0.0.1:{nobody.getsockname()[1]}/release.tar"
        serve(Settings(release=release, port=0, admin_port=0, log_file=log, drain_seconds=600))
        stopper.join()
    assert [orjson.loads(line)["event"] for line in log.read_bytes().splitlines()] == ["stopping"]


def test_h6_while_stages_start_the_routes_say_so_and_a_signal_ends_the_process(tmp_path: Path) -> None:
    """Liveness is 200, readiness and requests 503 in the dialect's shape; a signal then ends serving without a drain."""
    log = tmp_path / "log"
    with socket.create_server(("127.0.0.1", 0)) as silent:  # it takes connections and answers none
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        stage = {"adapter": "tei", "url": url, "model": "m", "engine": "tei/1.9"}
        release = _release(tmp_path, stages={"small": stage}, depth=5)
        stopper = _EarlyStopper(log, awaited="starting")
        stopper.start()
        serve(Settings(release=release, port=0, admin_port=0, log_file=log, drain_seconds=600))
        stopper.join()
    seen = stopper.seen
    assert (seen["live"], seen["ready"], seen["health"], seen["status"]["ready"]) == (200, 503, 503, False)
    assert seen["rollout"] == 503
    tei, vllm = seen["answers"]["tei"], seen["answers"]["vllm"]
    assert (tei.status_code, tei.headers["retry-after"]) == (503, "1")
    assert tei.json()["error"] == "answer: the stages are starting"
    assert (vllm.status_code, vllm.headers["retry-after"]) == (503, "1")
    assert vllm.json()["error"]["type"] == "ServiceUnavailableError"
    events = [orjson.loads(line)["event"] for line in log.read_bytes().splitlines()]
    assert events.count("stopping") == 1
    assert "serving" not in events


def test_a_stage_that_cannot_start_ends_the_listeners(tmp_path: Path) -> None:
    """The error is the stage's own, and both sockets are given back."""
    stage = {"adapter": "onnx", "model": "m", "engine": "onnxruntime", "weights": {"folder": str(tmp_path / "none")}}
    release = _release(tmp_path, stages={"small": stage}, depth=5)
    port = _closed_port()
    with pytest.raises(ConfigError, match="none"):
        serve(Settings(release=release, port=port, admin_port=0, log_file=tmp_path / "log"))
    socket.create_server(("127.0.0.1", port)).close()


def test_a_stable_release_that_does_not_start_ends_no_process(tmp_path: Path) -> None:
    """Its weights are gone since the last start: what settings name serves, readiness follows, and the desk tells why."""
    weights = tmp_path / "weights"
    stage = {"adapter": "onnx", "model": "m", "engine": "onnxruntime", "weights": {"folder": str(weights)}}
    (tmp_path / "gone").mkdir()
    gone = _release(tmp_path / "gone", release="gone-1", stages={"small": stage}, depth=5)
    store = ReleaseStore(tmp_path / "state" / "releases")
    kept = KeptRelease(release="gone-1", digest=store.put(gone).digest, activated_at="t")
    StateWithStore(StateFile(tmp_path / "state"), store).write(Remembered(stable=kept))
    stopper = _DeskReader(tmp_path / "log")
    stopper.start()
    serve(
        Settings(
            release=_release(tmp_path),
            watch_release=True,
            state_folder=tmp_path / "state",
            port=0,
            admin_port=0,
            log_file=tmp_path / "log",
            drain_seconds=0,
        )
    )
    stopper.join()
    assert (stopper.seen["ready"], stopper.seen["status"]["release"]) == (200, "bare-1")
    (passed,) = stopper.seen["status"]["start"]["passed_over"]
    assert (passed["release"], passed["step"]) == ("gone-1", "start")
    assert (stopper.seen["desk"]["stable"]["release"], stopper.seen["desk"]["refused"]["release"]) == (
        "bare-1",
        "gone-1",
    )


class _DeskReader(_Stopper):
    """Look at the desk too."""

    def look(self, client: httpx.Client, public: str, admin: str) -> None:
        super().look(client, public, admin)
        self.seen["desk"] = client.get(f"{admin}/rollout").json()


def _told_of_the_stage(folder: Path, url: str) -> list[tuple[str, str, str, str | None]]:
    """Serve one stage until it is announced; return event, level, stage and code of what is said of it then.

    Probes come later, when they come.
    """
    stage = {"adapter": "tei", "url": url, "model": "m", "engine": "tei/1.9", "connect_ms": 50}
    log = folder / "log"
    stopper = _Stopper(log, signal.SIGTERM)
    stopper.start()
    release = _release(folder, stages={"small": stage}, depth=5)
    serve(Settings(release=release, port=0, admin_port=0, log_file=log, drain_seconds=0))
    stopper.join()
    events = [event for event in map(orjson.loads, log.read_bytes().splitlines()) if "stage" in event["event"]]
    later = ("stage probe", "stage is not as declared")
    events = [event for event in events if event["event"] not in later]
    return [(event["event"], event["level"], event["stage"], event.get("code")) for event in events]


def test_serve_says_which_stage_has_not_been_reached(tmp_path: Path) -> None:
    """A server that refuses connections does not keep the sidecar from serving: a line says so."""
    told = _told_of_the_stage(tmp_path, f"http://127.0.0.1:{_closed_port()}")
    assert told == [("stage not reached yet", "warning", "small", None)]


def test_d6_serve_says_which_server_cannot_serve_its_stage(tmp_path: Path) -> None:
    """A server that holds another kind of model is an error line with the cause; serving goes on without it."""
    with listening(FakeTei(model_type="embedding")) as url:
        assert _told_of_the_stage(tmp_path, url) == [("stage unusable", "error", "small", "not_a_reranker")]


def test_serve_says_nothing_of_a_stage_that_is_there(tmp_path: Path) -> None:
    """No line is written for a server that answered."""
    with listening(FakeTei()) as url:
        assert _told_of_the_stage(tmp_path, url) == []


@pytest.mark.parametrize("measured", [False, True])
def test_serve_warns_of_load_levels_whose_quality_is_not_measured(tmp_path: Path, measured: bool) -> None:
    """With a report that tells of every level nothing is said, and `/status` has the figures."""
    levels = [{"name": "normal"}, {"name": "none", "stages": "none"}]
    data = report_for({**_BARE, "levels": levels})
    evidence = {"report": f"sha256:{hashlib.sha256(data).hexdigest()}"} if measured else None
    (tmp_path / "artifacts").mkdir()
    (tmp_path / "artifacts" / f"{hashlib.sha256(data).hexdigest()}.json").write_bytes(data)
    release = _release(tmp_path, levels=levels, **({} if evidence is None else {"evidence": evidence}))
    stopper = _Stopper(tmp_path / "log")
    stopper.start()
    serve(Settings(release=release, port=0, admin_port=0, log_file=tmp_path / "log", drain_seconds=0))
    stopper.join()
    told = [
        (event["level"], event["load_levels"], event["why"])
        for event in _events(tmp_path)
        if event["event"] == "load levels whose quality is not measured"
    ]
    figures = {"ndcg": 0.5, "minus_always_large": -0.01}
    if measured:
        assert told == []
        assert stopper.seen["status"]["measured"] == {"why_not": None, "levels": {"normal": figures, "none": figures}}
    else:
        assert told == [("warning", ["normal", "none"], "it names no report")]
        assert stopper.seen["status"]["measured"] == {"why_not": "it names no report", "levels": {}}


def _events(folder: Path) -> list[dict[str, Any]]:
    return [orjson.loads(line) for line in (folder / "log").read_bytes().splitlines()]


class _ProbeReader(_Stopper):
    """Look around once the small stage was probed."""

    def look(self, client: httpx.Client, public: str, admin: str) -> None:
        for _ in range(1000):
            super().look(client, public, admin)
            probed = self.seen["status"]["stages"]["small"]["probe"]
            if probed is not None:
                self.seen["verdict"] = probed["verdict"]
                break
            threading.Event().wait(0.005)


def _serve_fake(folder: Path, url: str, stopper: _Stopper, **fields: Any) -> _Stopper:
    """Serve one stage until the stopper has looked around; return it."""
    stage = {"adapter": "tei", "url": url, "model": "fake/reranker", "engine": "tei/1.9", "dtype": "float16"}
    stopper.start()
    release = _release(folder, stages={"small": stage}, depth=5, **fields)
    serve(Settings(release=release, port=0, admin_port=0, log_file=folder / "log", drain_seconds=0))
    stopper.join()
    return stopper


def test_enforced_probes_keep_readiness_back_while_a_stage_scores_wrong(tmp_path: Path) -> None:
    """The first finding is told, readiness stays 503, and the process ends in good order without having served."""
    with listening(FakeTei(score_of=lambda query, text: -float("Paris" in text))) as url:
        stopper = _serve_fake(tmp_path, url, _ProbeReader(tmp_path / "log", awaited="starting"), probe="enforce")
    events = [event["event"] for event in _events(tmp_path)]
    assert "serving" not in events
    assert events[-1] == "stopping"
    assert (stopper.seen["verdict"], stopper.seen["ready"]) == ("wrong_order", 503)


def test_enforced_probes_that_pass_make_the_sidecar_ready(tmp_path: Path) -> None:
    """Serving is announced after the probe, which is not told of in the log, for it is sound."""
    with listening(FakeTei(score_of=lambda query, text: float("Paris" in text) - len(text) / 1000)) as url:
        stopper = _serve_fake(tmp_path, url, _Stopper(tmp_path / "log"), probe="enforce")
    assert stopper.seen["ready"] == 200
    assert stopper.seen["status"]["stages"]["small"]["probe"]["verdict"] == "ok"


def test_probes_that_are_off_are_not_made(tmp_path: Path) -> None:
    """No known pair is scored."""
    server = FakeTei()
    with listening(server) as url:
        stopper = _serve_fake(tmp_path, url, _Stopper(tmp_path / "log"), probe="off")
    assert stopper.seen["ready"] == 200
    assert stopper.seen["status"]["stages"]["small"]["probe"] is None
    assert "stage probe" not in [event["event"] for event in _events(tmp_path)]


def _calibrated(folder: Path, url: str, **stage: Any) -> Written:
    """Write a release of two fake servers with a calibration that was fitted on version 1.9 of them."""
    servers = {name: _fake_stage(name, url) for name in ("small", "large")}
    fitted = {name: identity_of(**server) for name, server in servers.items()}
    artefact = artefact_for(**fitted)
    rule = {"kind": "calibrated", "calibration": digest_for(**fitted), "price_per_pair": 0.002, "safe_top_m": 2}
    stages = {**servers, "small": {**servers["small"], **stage}}
    budgets = {"total_ms": 5000, "small_ms": 2000, "large_ms": 2000, "reserve_ms": 10}
    return write_release(folder, artefact, stages=stages, escalation=rule, budgets=budgets)


def _fake_stage(name: str, url: str) -> dict[str, Any]:
    return stage_data(name, url=url, model="fake/reranker", dtype="float16")


_BODY: Final = {
    "query": "q",
    "candidates": [{"text": f"text {number}", "scores": {"bm25": 9.0 - number}} for number in range(5)],
    "explain": True,
}


async def _ask_service(settings: Settings) -> tuple[dict[str, Any], dict[str, Any], float]:
    """Return the answer to a request, what the status says of the calibration, and the metric of the safe mode."""
    async with open_service(settings, {}) as service:
        transport = httpx.ASGITransport(public_app(service))
        async with httpx.AsyncClient(transport=transport, base_url="http://sidecar.test") as client:
            answer = (await client.post("/v1/cascade/rerank", json=_BODY)).json()
        told = status(service)["calibration"]
        gauge = service.metrics.registry.get_sample_value("cascade_safe_mode")
    return answer, told, gauge or 0.0


@pytest.mark.parametrize("kind", ["file", "folder", "tar"])
async def test_a_release_is_served_with_its_calibration_from_a_file_and_from_a_bundle(
    tmp_path: Path, kind: str
) -> None:
    """The calibration decides, and no answer is degraded."""
    with listening(FakeTei()) as url:
        written = _calibrated(tmp_path, url)
        path = {"file": written.path, "folder": tmp_path / "bundle", "tar": tmp_path / "bundle.tar"}[kind]
        if kind != "file":
            build_bundle(written.path, path, {})
        answer, told, gauge = await _ask_service(Settings(release=path))
    assert answer["degraded"] == []
    assert answer["explain"]["estimates"] is not None
    assert (told["state"], told["digest"], gauge) == ("used", written.digest, 0.0)


async def test_a_missing_calibration_is_the_safe_mode_at_a_cold_start(tmp_path: Path) -> None:
    """Serving goes on, and says so in every answer, in the status and in the metric."""
    with listening(FakeTei()) as url:
        written = _calibrated(tmp_path, url)
        written.calibration.unlink()
        answer, told, gauge = await _ask_service(Settings(release=written.path))
    assert answer["degraded"] == ["calibration_mismatch"]
    assert len(answer["explain"]["escalated"]) == 2
    assert (told["state"], gauge) == ("safe_mode", 1.0)
    assert told["reasons"][0].startswith(f"artefact {written.digest}: no file has this digest")


async def test_a_server_of_another_version_is_the_safe_mode_at_a_cold_start(tmp_path: Path) -> None:
    """What is declared is what was fitted on, and the server says otherwise."""
    with listening(FakeTei(version="1.8")) as url:
        written = _calibrated(tmp_path, url)
        answer, told, _ = await _ask_service(Settings(release=written.path))
    assert answer["degraded"] == ["calibration_mismatch"]
    line = "version: declared 1.9, the server says 1.8.0"
    assert told["reasons"] == [f"small stage: {line}", f"large stage: {line}"]


def test_a_server_that_is_replaced_while_serving_is_noticed(tmp_path: Path) -> None:
    """The log says so after one interval, with no request sent."""
    server = FakeTei()
    log = tmp_path / "log"

    class Replacer(_Stopper):
        def look(self, client: httpx.Client, public: str, admin: str) -> None:
            server.version = "1.8"
            for _ in range(400):
                self.seen = client.get(f"{admin}/status").json()["calibration"]
                if self.seen["state"] == "safe_mode":
                    break
                threading.Event().wait(0.01)

    with listening(server) as url:
        written = _calibrated(tmp_path, url)
        stopper = Replacer(log)
        stopper.start()
        serve(
            Settings(
                release=written.path, port=0, admin_port=0, log_file=log, drain_seconds=0, fingerprint_seconds=0.05
            )
        )
        stopper.join()
    assert stopper.seen["state"] == "safe_mode"
    assert next(event["level"] for event in _events(tmp_path) if event["event"] == "safe mode") == "warning"


@pytest.mark.parametrize("which", ["port", "admin_port"])
def test_a_port_in_use_is_named(tmp_path: Path, which: str) -> None:
    """The error names the setting and the address, and the other listener's socket is given back."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ports = {"port": 0, "admin_port": 0, which: port}
        settings = Settings(release=_release(tmp_path), log_file=tmp_path / "log", **ports)
        with pytest.raises(ConfigError, match=rf"^{which}: cannot listen on 127.0.0.1:{port}: .*in use"):
            serve(settings)


@pytest.mark.parametrize("host", ["a..b", "bäd", "a\x00b", "no-such-host.invalid"])
def test_a_host_that_is_none_is_named(tmp_path: Path, host: str) -> None:
    """A name that cannot be an address, or that nothing resolves, is an error of the setting."""
    settings = Settings(release=_release(tmp_path), host=host, log_file=tmp_path / "log")
    with pytest.raises(ConfigError) as refused:
        serve(settings)
    assert str(refused.value).startswith("port: cannot listen on ")
    assert str(refused.value).isprintable()


def test_a_log_file_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    """The error names the setting."""
    with pytest.raises(ConfigError, match=r"^log_file: cannot be opened: IsADirectoryError$"):
        serve(Settings(log_file=tmp_path))


def test_a_bad_release_gives_both_sockets_back(tmp_path: Path) -> None:
    """A start that fails after the sockets were bound leaves neither open."""
    bad = _release(tmp_path, depth=-1)
    port = _closed_port()
    with pytest.raises(ConfigError, match="depth"):
        serve(Settings(release=bad, port=port, admin_port=0, log_file=tmp_path / "log"))
    socket.create_server(("127.0.0.1", port)).close()


async def test_open_service_starts_and_closes_stages(tmp_path: Path) -> None:
    """The service has the release's stages, metrics that name it, and a readiness that is still false."""
    before = asyncio.all_tasks()
    with listening(FakeTei()) as url:
        stage = {"adapter": "tei", "url": url, "model": "m", "engine": "e"}
        path = _release(tmp_path, stages={"large": stage}, depth=5, escalation={"kind": "static", "top_m": 5})
        async with open_service(Settings(release=path), {}) as service:
            assert set(service.traffic.stable.pipeline.stages) == {StageName.LARGE}
            assert service.traffic.stable.pipeline.stages[StageName.LARGE].observed is not None
            assert service.ready is False
            exposed = service.metrics.exposition().decode()
            digest = service.traffic.stable.digest
            assert f'cascade_release_info{{arm="stable",digest="{digest}",release="bare-1"' in exposed
    assert asyncio.all_tasks() == before


async def test_evidence_that_does_not_hold_is_shown_while_serving(tmp_path: Path) -> None:
    """By kind, as a gauge and in `/status`: a certificate that is not there, and a report of another policy."""
    evidence = {"certificate": f"sha256:{'0' * 64}", "report": f"sha256:{hashlib.sha256(report_for({})).hexdigest()}"}
    (tmp_path / "artifacts").mkdir()
    (tmp_path / "artifacts" / f"{hashlib.sha256(report_for({})).hexdigest()}.json").write_bytes(report_for({}))
    async with open_service(Settings(release=_release(tmp_path, evidence=evidence)), {}) as service:
        shown = service.metrics.exposition().decode()
        assert 'cascade_evidence_mismatch{kind="certificate"} 1.0' in shown
        assert 'cascade_evidence_mismatch{kind="report"} 1.0' in shown
        faults = status(service)["evidence_faults"]
        assert faults["certificate"].startswith("artefact sha256:000")
        assert faults["report"].startswith("its report is of the policy ")
        with captured_log() as log, socket.create_server(("127.0.0.1", 0)) as bound:
            announce(service, bound, bound)
        told = {line["kind"]: line["why"] for line in _lines(log) if line["event"] == "evidence does not hold"}
        assert told == faults
    async with open_service(Settings(release=_release(tmp_path)), {}) as service:
        assert 'cascade_evidence_mismatch{kind="report"} 0.0' in service.metrics.exposition().decode()
        assert status(service)["evidence_faults"] == {}


def _lines(log: io.BytesIO) -> list[dict[str, Any]]:
    return [orjson.loads(line) for line in log.getvalue().splitlines()]


async def test_a_fault_of_a_look_that_could_not_wait_is_counted(tmp_path: Path) -> None:
    """The loop runs that look by itself, so nobody else would tell of its fault."""
    async with open_service(Settings(release=_release(tmp_path)), {}) as service:

        def fails(level: int) -> None:
            raise ValueError("canary")

        service.traffic.stable.stepping._soon(lambda: fails(1))
        await asyncio.sleep(0)
        assert b"cascade_internal_faults_total 1.0" in service.metrics.exposition()


async def test_a_pinned_level_asks_its_stages_only_and_starts_them_all(tmp_path: Path) -> None:
    """The large server is not there, and need not be; an operator who lets go of the level finds it started."""
    levels = [{"name": "normal"}, {"name": "degraded-1", "escalation": "none"}]
    with listening(FakeTei()) as url:
        stage = {"adapter": "tei", "model": "m", "engine": "e"}
        stages = {"small": {**stage, "url": url}, "large": {**stage, "url": "http://127.0.0.1:9"}}
        path = _release(tmp_path, stages=stages, depth=5, escalation={"kind": "static", "top_m": 5}, levels=levels)
        async with open_service(Settings(release=path, level="degraded-1"), {}) as service:
            assert set(service.traffic.stable.pipeline.stages) == {StageName.SMALL}
            assert service.traffic.stable.pipeline.every_stage[StageName.LARGE].observed is None
            assert service.traffic.stable.pipeline.level == Level("degraded-1", 1)
            assert status(service)["level"] == "degraded-1"


async def test_an_unknown_level_is_refused_at_start_with_those_that_there_are(tmp_path: Path) -> None:
    """Nothing is built for it."""
    with pytest.raises(ConfigError, match=r"^level: release bare-1 has no level of that name; it has normal$"):
        async with open_service(Settings(release=_release(tmp_path), level="degraded-1"), {}):
            pytest.fail("it was served")


async def test_open_service_gives_back_what_it_opened_when_a_stage_cannot_start(tmp_path: Path) -> None:
    """Weights that are not there are a ConfigError, and the other stage's task is ended."""
    small = {
        "adapter": "tei",
        "url": f"http://127.0.0.1:{_closed_port()}",
        "model": "m",
        "engine": "e",
        "connect_ms": 50,
    }
    large = {"adapter": "onnx", "model": "m", "engine": "onnxruntime", "weights": {"folder": str(tmp_path / "none")}}
    path = _release(
        tmp_path, stages={"small": small, "large": large}, depth=5, escalation={"kind": "static", "top_m": 5}
    )
    before = asyncio.all_tasks()
    with pytest.raises(ConfigError, match="none"):
        async with open_service(Settings(release=path), {}):
            pytest.fail("a stage without weights started")
    assert {task for task in asyncio.all_tasks() - before if "limits of" in task.get_name()} == set()


def test_the_packaged_release_is_read_where_none_is_named() -> None:
    """Without a setting the default release is served."""
    assert read_release(Settings(), {}).release.release == "default-2026-11"


@pytest.mark.parametrize(
    ("key", "message"),
    [
        (None, "query_hash_key_file: cannot be read: FileNotFoundError"),
        (b"short", "query_hash_key_file: a key has 16 to 64 bytes"),
        (b"x" * 65, "query_hash_key_file: a key has 16 to 64 bytes"),
    ],
)
async def test_a_key_of_query_hashes_is_checked(tmp_path: Path, key: bytes | None, message: str) -> None:
    """A key that is missing, too short or too long keeps the sidecar from starting."""
    file = tmp_path / "key"
    if key is not None:
        file.write_bytes(key)
    with pytest.raises(ConfigError, match=f"^{message}$"):
        async with open_service(Settings(release=_release(tmp_path), query_hash_key_file=file), {}):
            pytest.fail("a bad key was taken")


async def _hash(settings: Settings, query: str) -> str:
    body = {"query": query, "candidates": [{"text": "a"}], "explain": True}
    async with open_service(settings, {}) as service:
        transport = httpx.ASGITransport(public_app(service))
        async with httpx.AsyncClient(transport=transport, base_url="http://sidecar.test") as client:
            response = await client.post("/v1/cascade/rerank", json=body)
    return str(response.json()["explain"]["query_hash"])


async def test_g1_query_hashes_depend_on_the_key(tmp_path: Path) -> None:
    """One key gives equal hashes to equal queries over restarts; another key, or none, gives others."""
    release = _release(tmp_path)
    keys = [tmp_path / "one", tmp_path / "two"]
    for file, letter in zip(keys, "ab", strict=True):
        file.write_text(letter * 32 + "\n", encoding="utf-8")
    one, two = (Settings(release=release, query_hash_key_file=file) for file in keys)
    first = await _hash(one, "query")
    assert first == await _hash(one, "query")
    assert (
        len(
            {
                first,
                await _hash(one, "other"),
                await _hash(two, "query"),
                await _hash(Settings(release=release), "query"),
            }
        )
        == 4
    )
    assert len(first) == 16


@pytest.mark.parametrize(("host", "told"), [("127.0.0.1", []), ("0.0.0.0", ["keys_file"])])  # noqa: S104
def test_a_listener_that_others_reach_and_that_asks_for_no_key_is_told_of(
    tmp_path: Path, host: str, told: list[str]
) -> None:
    """One warning line; on a loopback address there is none."""
    log = tmp_path / "log"
    stopper = _Stopper(log)
    stopper.start()
    serve(Settings(release=_release(tmp_path), host=host, port=0, admin_port=0, log_file=log, drain_seconds=0))
    stopper.join()
    assert [event["setting"] for event in _events(tmp_path) if "open to all" in event["event"]] == told
