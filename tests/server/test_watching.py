"""The safe mode: when it decides, what is told of it, and that a request is decided by one state."""

from __future__ import annotations

import asyncio
import io
import re
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cascade.calibration.artefact import CalibrationArtefact, artefact_bytes, artefact_digest
from cascade.calibration.certificate import certificate_bytes, parse_certificate
from cascade.decision import Action
from cascade.rollout.bundle import load_bundle
from cascade.server.calibration_use import CalibrationState
from cascade.server.watching import watch_stages
from cascade.stages.base import Observed
from cascade.telemetry.logs import configure_logging
from cascade.testing.clock import run_virtual
from cascade.testing.stages import ScriptedStage
from tests.logs import logging_given_back
from tests.rollout.arrange import artefact_for, stage_data, write_release
from tests.server.releases import Models, another, served, stage_of
from tests.server.sidecar import Sidecar, sidecar

_AS_DECLARED = Observed(model="org/small", dtype="float32", version="1.9.1")
_OTHER = Observed(model="org/small", dtype="float32", version="1.8.0")
_TEXTS = [f"text {number}" for number in range(20)]


def _score(query: str, text: str) -> float:
    number = int(text.split()[1])
    return float(number * number % 17)


def _serve(
    folder: Path,
    *,
    delay_ms: float = 0.0,
    spoil: Callable[[Path], object] | None = None,
    artefact: CalibrationArtefact | None = None,
    small: ScriptedStage | None = None,
    **changes: Any,
) -> Sidecar:
    """Return a sidecar that serves a release with its calibration; the safe mode sends the first three."""
    rule = {
        "kind": "calibrated",
        "price_per_pair": 0.05,
        "safe_top_m": 3,
        "calibration": artefact_digest(artefact_bytes(artefact or artefact_for())),
    }
    written = write_release(folder, artefact, **{"escalation": rule} | changes)
    if spoil is not None:
        spoil(written.calibration)
    bundle = load_bundle(written.path, {})
    small = small or ScriptedStage(_score, delay_ms=delay_ms, observed=_AS_DECLARED)
    served = sidecar(small, ScriptedStage(_score, delay_ms=delay_ms), bundle=bundle)
    served.service.traffic.stable.settle()
    return served


async def _ask(served: Sidecar) -> dict[str, Any]:
    candidates = [
        {"id": str(number), "text": text, "scores": {"bm25": float(20 - number)}} for number, text in enumerate(_TEXTS)
    ]
    response = await served.post(
        "/v1/cascade/rerank", {"query": "q", "candidates": candidates, "explain": True, "deadline_ms": 100}
    )
    body: dict[str, Any] = response.json()
    return body


def _logged(play: Coroutine[Any, Any, None]) -> list[dict[str, Any]]:
    """Play on virtual time; return the log's lines."""
    with logging_given_back():
        log = io.BytesIO()
        configure_logging("info", log)
        run_virtual(play)
    return [orjson.loads(line) for line in log.getvalue().splitlines()]


async def _state(served: Sidecar) -> dict[str, Any]:
    told: dict[str, Any] = (await served.admin.get("/status")).json()["calibration"]
    return told


def test_a_calibration_that_fits_decides(tmp_path: Path) -> None:
    """Answers are not degraded, status and metric say that it is used, and the log says nothing."""

    async def play() -> None:
        served = _serve(tmp_path)
        answer = await _ask(served)
        assert answer["degraded"] == []
        assert answer["explain"]["action"] == Action.CLUSTER
        assert await _state(served) == {
            "digest": served.service.traffic.stable.pipeline.release.calibration, "state": "used", "reasons": [], "uncompared": [],
        }  # fmt: skip
        assert (await served.metrics())["cascade_safe_mode"] == 0

    assert [line["event"] for line in _logged(play())] == ["rerank"]


@pytest.mark.parametrize(
    ("spoil", "changes", "told"),
    [
        (Path.unlink, {}, "artefact sha256:.*: no file has this digest"),
        (lambda path: path.write_bytes(b"{}"), {}, "artefact sha256:.*: no file has this digest"),
        (
            None,
            {"stages": {"small": stage_data("small", quantization="int8"), "large": stage_data("large")}},
            "small stage: quantization: declared int8, fitted on none",
        ),
    ],
    ids=["missing", "altered", "fitted for another"],
)
def test_a_calibration_that_cannot_be_used_means_the_safe_mode_from_the_start(
    tmp_path: Path, spoil: Callable[[Path], object] | None, changes: dict[str, Any], told: str
) -> None:
    """Every answer says so, the head of the small order is escalated, and status, metric and log say why."""

    async def play() -> None:
        served = _serve(tmp_path, spoil=spoil, **changes)
        answer = await _ask(served)
        assert answer["degraded"] == ["calibration_mismatch"]
        assert answer["explain"]["action"] == Action.SAFE
        assert len(answer["explain"]["escalated"]) == 3
        state = await _state(served)
        assert state["state"] == CalibrationState.SAFE_MODE
        (reason,) = state["reasons"]
        assert re.match(told, reason)
        assert (await served.metrics())["cascade_safe_mode"] == 1
        served.service.traffic.stable.settle()

    lines = [line for line in _logged(play()) if line["event"] == "safe mode"]
    assert len(lines) == 1
    assert lines[0]["level"] == "warning"


def test_what_cannot_be_compared_is_told_and_used_all_the_same(tmp_path: Path) -> None:
    """A calibration that knows only a scorer's name decides."""

    async def play() -> None:
        bundle = load_bundle(write_release(tmp_path / "named", artefact_for(small=None)).path, {})
        served = sidecar(bundle=bundle)
        served.service.traffic.stable.settle()
        state = await _state(served)
        assert state["state"] == CalibrationState.USED
        assert state["uncompared"] == ["small stage: fitted on small, of which only the name is known"]

    _logged(play())


def test_a_release_without_a_calibration_has_no_safe_mode(tmp_path: Path) -> None:
    """A server that is not as declared changes nothing about what decides."""

    async def play() -> None:
        served = _serve(tmp_path, escalation={"kind": "static", "top_m": 5})
        served.small.observed = _OTHER
        before = served.service.traffic.stable.pipeline
        served.service.traffic.stable.settle()
        assert served.service.traffic.stable.pipeline is before
        assert (await _state(served))["state"] == CalibrationState.NONE
        assert (await served.metrics())["cascade_safe_mode"] == 0

    assert _logged(play()) == []


def test_a_server_that_changes_is_noticed_within_the_interval_and_so_is_its_return(tmp_path: Path) -> None:
    """The safe mode comes and goes; each is one line of the log, with why."""

    async def play() -> None:
        served = _serve(tmp_path)
        watching = asyncio.create_task(watch_stages(served.service, 60.0))
        served.small.observed = _OTHER
        await asyncio.sleep(60.5)
        assert (await _ask(served))["degraded"] == ["calibration_mismatch"]
        await asyncio.sleep(60)
        served.small.observed = _AS_DECLARED
        await asyncio.sleep(60)
        assert (await _ask(served))["degraded"] == []
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)

    lines = [line for line in _logged(play()) if line["event"] != "rerank"]
    assert [(line["event"], line["level"]) for line in lines] == [("safe mode", "warning"), ("safe mode ended", "info")]
    assert lines[0]["why"] == ["small stage: version: declared 1.9, the server says 1.8.0"]


def test_weights_of_others_than_the_calibration_was_fitted_on_mean_the_safe_mode(tmp_path: Path) -> None:
    """Though the release declares what it declared before: the files in its folder were exchanged."""
    fitted = artefact_for()
    small = fitted.small.model_copy(update={"weights_sha256": "1" * 64})
    artefact = fitted.model_copy(update={"small": small})

    async def play() -> None:
        for digit, degraded in (("1", []), ("2", ["calibration_mismatch"])):
            observed = replace(_AS_DECLARED, weights_sha256=digit * 64)
            served = _serve(tmp_path, artefact=artefact, small=ScriptedStage(_score, observed=observed))
            assert (await _ask(served))["degraded"] == degraded
        told = "small stage: weights: loaded from files of sha256 222222222222…, fitted on sha256 111111111111…"
        assert (await _state(served))["reasons"] == [told]

    _logged(play())


def _certify_weights(calibration: Path) -> None:
    """Have the release name a certificate that tells the weights of the small stage."""
    path = calibration.parent.parent / "policies" / "release.yaml"
    known = parse_certificate((calibration.parent / "certificate.json").read_bytes(), path)
    small = known.small.model_copy(update={"weights_sha256": "1" * 64})
    data = certificate_bytes(known.model_copy(update={"small": small}))
    (calibration.parent / "weights.json").write_bytes(data)
    release = yaml.safe_load(path.read_text(encoding="utf-8"))
    release["evidence"]["certificate"] = artefact_digest(data)
    path.write_text(yaml.safe_dump(release), encoding="utf-8")


@pytest.mark.parametrize("escalation", [{}, {"escalation": {"kind": "static", "top_m": 3}}])
def test_weights_of_others_than_a_certificate_is_of_are_told_and_refuse_an_activation(
    tmp_path: Path, escalation: dict[str, Any]
) -> None:
    """Nothing decides otherwise, also where no calibration is named: the evidence does not hold."""
    told = "small stage: weights: loaded from files of sha256 222222222222…, fitted on sha256 111111111111…"

    async def play() -> None:
        small = ScriptedStage(_score, observed=replace(_AS_DECLARED, weights_sha256="2" * 64))
        served = _serve(tmp_path, small=small, spoil=_certify_weights, **escalation)
        stable = served.service.traffic.stable
        assert (await _ask(served))["degraded"] == []
        assert (await served.metrics())['cascade_evidence_mismatch{kind="certificate"}'] == 1
        assert stable.evidence_faults == {"certificate": told}
        assert stable.unlike() == [f"certificate, {told}"]
        small.observed = replace(_AS_DECLARED, weights_sha256="1" * 64)
        stable.settle()
        assert (await served.metrics())['cascade_evidence_mismatch{kind="certificate"}'] == 0
        assert (stable.evidence_faults, stable.unlike()) == ({}, [])

    _logged(play())


def test_a_server_that_did_not_answer_is_looked_at_again_soon(tmp_path: Path) -> None:
    """It may come back as another: that is noticed in seconds, not in an interval."""

    async def play() -> None:
        served = _serve(tmp_path)
        served.small.observed = None
        watching = asyncio.create_task(watch_stages(served.service, 60.0))
        await asyncio.sleep(7)
        served.small.observed = _OTHER
        await asyncio.sleep(2)
        assert served.service.traffic.stable.calibration.state is CalibrationState.SAFE_MODE
        looks = served.small.looks
        await asyncio.sleep(50)
        assert served.small.looks == looks
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)

    _logged(play())


def test_a_server_that_returns_is_looked_at_at_once_and_once_a_second_at_most(tmp_path: Path) -> None:
    """It may have come back as another: the interval is not waited for."""

    async def play() -> None:
        served = _serve(tmp_path)
        watching = asyncio.create_task(watch_stages(served.service, 3600.0))
        await asyncio.sleep(100)
        assert served.small.looks == 0
        served.small.observed = _OTHER
        served.small.back.set()
        await asyncio.sleep(0.01)
        assert served.service.traffic.stable.calibration.state is CalibrationState.SAFE_MODE
        for _ in range(50):
            served.small.back.set()
            await asyncio.sleep(0.1)
        assert served.small.looks == 1 + 5
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)

    _logged(play())


def test_a_fault_of_ours_while_looking_is_counted_and_looking_goes_on(tmp_path: Path) -> None:
    """The task outlives it."""

    class Faulty(ScriptedStage):
        async def look_again(self) -> bool:
            await ScriptedStage.look_again(self)
            raise ValueError("kingfisher")

    async def play() -> None:
        faulty = Faulty(_score, observed=_AS_DECLARED)
        served = _serve(tmp_path, small=faulty)
        watching = asyncio.create_task(watch_stages(served.service, 1.0))
        await asyncio.sleep(5.5)
        assert faulty.looks == 5
        assert (await served.metrics())["cascade_internal_faults_total"] == 5
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)

    assert b"kingfisher" not in orjson.dumps(_logged(play()))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
@given(safe_at_first=st.booleans(), waits_ms=st.lists(st.integers(1, 30), max_size=6))
def test_a_request_is_decided_by_one_state(tmp_path: Path, *, safe_at_first: bool, waits_ms: list[int]) -> None:
    """However often the safe mode comes and goes under way, the answer is wholly of the state that it began in."""

    async def play() -> None:
        served = _serve(tmp_path, delay_ms=20.0)

        def flip() -> None:
            served.small.observed = _OTHER if served.small.observed == _AS_DECLARED else _AS_DECLARED
            served.service.traffic.stable.settle()

        async def flip_under_way() -> None:
            for wait_ms in waits_ms:
                await asyncio.sleep(wait_ms / 1000)
                flip()

        if safe_at_first:
            flip()
        flipping = asyncio.create_task(flip_under_way())
        answer = await _ask(served)
        explained = answer["explain"]
        assert (explained["action"] == Action.SAFE) is safe_at_first
        assert (answer["degraded"] == ["calibration_mismatch"]) is safe_at_first
        assert (explained["estimates"] is None) is safe_at_first
        assert (len(explained["escalated"]) == 3) is safe_at_first
        await flipping
        assert (served.service.traffic.stable.calibration.state is CalibrationState.SAFE_MODE) is bool(
            safe_at_first ^ len(waits_ms) % 2
        )

    _logged(play())


def test_looking_follows_the_releases_that_are_there() -> None:
    """A stage is looked at from when a release brings it until the last one that has it is closed, a shared one once."""

    async def play() -> None:
        models = Models(**{name: {"observed": Observed()} for name in ("small", "large", "other")})
        sidecar = served(models)
        traffic = sidecar.service.traffic
        watching = asyncio.create_task(watch_stages(sidecar.service, 10.0))
        await asyncio.sleep(10.5)
        assert [models.of(name).looks for name in ("small", "large")] == [1, 1]
        candidate = await another(sidecar, stages={"small": stage_of("small"), "large": stage_of("other")})
        traffic.split(candidate, 0.5)
        await asyncio.sleep(9.75)
        assert [models.of(name).looks for name in ("small", "large", "other")] == [2, 2, 0]
        old = traffic.activate(candidate)
        await old.aclose()
        await asyncio.sleep(20)
        assert [models.of(name).looks for name in ("small", "large", "other")] == [4, 2, 2]
        assert not watching.done()
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)

    _logged(play())


def test_a_server_that_two_releases_share_and_that_changes_ends_the_calibrations_of_both(tmp_path: Path) -> None:
    """Within one look, each in its own state."""

    async def play() -> None:
        served = _serve(tmp_path)
        bundle = served.service.traffic.stable.bundle
        again = replace(bundle, loaded=replace(bundle.loaded, digest="sha256:again"))
        candidate = served.service.open_release(again)
        await candidate.start()
        served.service.traffic.split(candidate, 0.5)
        watching = asyncio.create_task(watch_stages(served.service, 60.0))
        served.small.observed = _OTHER
        await asyncio.sleep(60.5)
        states = [release.calibration.state for release in served.service.traffic.releases]
        assert states == [CalibrationState.SAFE_MODE] * 2
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        await candidate.aclose()

    lines = [line for line in _logged(play()) if line["event"] == "safe mode"]
    assert sorted(line.get("candidate", "") for line in lines) == ["", "r1"]
