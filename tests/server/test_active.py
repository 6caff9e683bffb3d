"""One release among others: what it tells before it decides, how it ends, and that it gives everything back."""

from __future__ import annotations

import asyncio
import gc
import io
import weakref
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml

from cascade.decision import Ranking
from cascade.errors import ConfigError, StageUnreachable
from cascade.guard.deadline import Deadline
from cascade.policy.release import StageSpec
from cascade.rollout.bundle import load_bundle
from cascade.server.active import ActiveRelease
from cascade.server.building import open_service
from cascade.server.settings import Settings
from cascade.stages.base import Observed
from cascade.stages.probe import Verdict
from cascade.telemetry.logs import configure_logging
from cascade.testing.clock import run_virtual
from cascade.testing.upstream import FakeTei
from cascade.text import Text
from cascade.types import Arm, Candidate, Request, StageName
from tests.e2e.processes import listening
from tests.rollout.arrange import artefact_for, digest_for, write_release
from tests.server.releases import TEXTS, Closable, Models, another, bundled, served, stage_of
from tests.server.sidecar import LEVELS, Sidecar
from tests.server.sidecar import sidecar as sidecar_of

_REQUEST = Request(Text("kingfisher"), tuple(Candidate(Text(text)) for text in TEXTS))


async def _turns() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def _ask(release: ActiveRelease) -> Ranking:
    with release.held():
        return await release.deciding().rerank(_REQUEST)


def test_until_it_has_an_arm_its_answers_are_of_nobody() -> None:
    """They are tagged shadow, and neither its level nor the metrics learn of them; then it decides like any other."""

    async def play() -> None:
        sidecar = served()
        candidate = await another(sidecar)
        assert (await _ask(candidate)).decision.arm is Arm.SHADOW
        assert candidate.pressure.look().arrivals == 0
        candidate.serve_as(Arm.CANARY)
        assert (await _ask(candidate)).decision.arm is Arm.CANARY
        assert candidate.pressure.look().arrivals == 1
        assert (await sidecar.metrics())['cascade_arm_requests_total{arm="canary",outcome="answered"}'] == 0
        await candidate.aclose()

    run_virtual(play())


def test_a_request_under_way_is_waited_for_and_its_stages_stay_open() -> None:
    """Its answer is the one that its release planned; then the stages are closed."""

    async def play() -> None:
        models = Models(slow={"delay_ms": 300})
        sidecar = served(models)
        candidate = await another(sidecar, stages={"small": stage_of("slow")}, escalation="none")
        asking = asyncio.create_task(_ask(candidate))
        await asyncio.sleep(0.1)
        closing = asyncio.create_task(candidate.aclose())
        await asyncio.sleep(0.1)
        assert models.of("slow").closed == 0
        ranking = await asking
        assert (ranking.decision.stage, ranking.decision.degraded) == (StageName.SMALL, ())
        await closing
        assert models.of("slow").closed == 1
        assert asyncio.get_running_loop().time() == pytest.approx(0.3, abs=0.01)

    run_virtual(play())


def test_what_is_under_way_after_the_leftover_time_is_answered_with_what_it_has() -> None:
    """Only the requests of the release that is closed; those of the stable one go on."""

    async def play() -> None:
        budgets = {"total_ms": 60_000.0, "small_ms": 60_000.0, "large_ms": 60_000.0, "reserve_ms": 20.0}
        models = Models(slow={"delay_ms": 50_000}, small={"delay_ms": 30_000})
        small_only: dict[str, Any] = {"stages": {"small": stage_of("small")}, "escalation": "none"}
        sidecar = served(models, bundle=bundled(budgets=budgets, **small_only))
        candidate = await another(sidecar, stages={"small": stage_of("slow")}, escalation="none", budgets=budgets)
        slow, other = asyncio.create_task(_ask(candidate)), asyncio.create_task(_ask(sidecar.service.traffic.stable))
        await asyncio.sleep(0.1)
        await candidate.aclose()
        assert asyncio.get_running_loop().time() == pytest.approx(20.1, abs=0.1)
        assert (await slow).decision.degraded == ("deadline_too_short",)
        assert models.of("slow").cancelled == 1
        assert (await other).decision.degraded == ()

    run_virtual(play())


def test_a_stage_is_not_kept_open_for_ever_for_one_that_does_not_end() -> None:
    """A second after the time of all was ended it is closed."""

    async def play() -> None:
        models = Models()
        sidecar = served(models)
        candidate = await another(sidecar, stages={"small": stage_of("other")}, escalation="none")
        candidate.enter()
        await candidate.aclose()
        assert asyncio.get_running_loop().time() == pytest.approx(21, abs=0.1)
        assert models.of("other").closed == 1

    run_virtual(play())


def test_it_is_closed_once_and_to_the_end_whoever_waits() -> None:
    """A caller that is cancelled leaves the rest to be done; a second one waits for the same end."""

    async def play() -> None:
        models = Models()
        sidecar = served(models)
        candidate = await another(sidecar, stages={"small": stage_of("other")}, escalation="none")
        candidate.enter()
        first = asyncio.create_task(candidate.aclose())
        await asyncio.sleep(0.1)
        first.cancel()
        second = asyncio.create_task(candidate.aclose())
        await asyncio.sleep(0.1)
        assert not second.done()
        candidate.leave()
        await second
        await candidate.aclose()
        assert (first.cancelled(), models.of("other").closed) == (True, 1)

    run_virtual(play())


def test_a_probe_tells_what_each_stage_answers() -> None:
    """A wrong order and a server that is away are told apart, and stay known."""

    async def play() -> None:
        def backwards(query: str, text: str) -> float:
            return -5.0 if "Paris" in text else float(len(text))

        models = Models(small={"score_of": backwards}, large={"fails": StageUnreachable})
        sidecar = served(models)
        stable = sidecar.service.traffic.stable
        found = await stable.probe(Deadline.after_ms(1000, sidecar.service.clock))
        assert {name: probe.verdict for name, probe in found.items()} == {
            StageName.SMALL: Verdict.WRONG_ORDER, StageName.LARGE: Verdict.FAILED,
        }  # fmt: skip
        told = (await sidecar.admin.get("/status")).json()["stages"]
        assert told["small"]["probe"]["verdict"] == "wrong_order"

    run_virtual(play())


async def test_a_server_that_is_not_as_declared_is_told_of_in_sentences() -> None:
    """Also without a calibration, and also a server that cannot serve the stage at all; one that says nothing is not."""
    models = Models(
        small={"observed": Observed(model="test/other", version="1.9.1", max_length=512)},
        large={"unusable": "unknown_model"},
    )
    sidecar = served(models)
    assert sidecar.service.traffic.stable.unlike() == [
        "large stage: the server cannot serve it: unknown_model",
        "small stage: model: declared test/small, the server says test/other",
    ]
    assert served().service.traffic.stable.unlike() == []


async def test_a_calibration_that_was_fitted_for_others_is_told_of(tmp_path: Path) -> None:
    """With the reason that the safe mode has."""
    rule = {"kind": "calibrated", "price_per_pair": 0.05, "safe_top_m": 3, "calibration": digest_for()}
    written = write_release(tmp_path, escalation=rule)
    written.calibration.unlink()
    bundle = load_bundle(written.path, {})
    release = served(bundle=bundle).service.traffic.stable
    await release.start()
    (why,) = release.unlike()
    assert why.startswith("artefact sha256:")
    await release.aclose()
    fits = load_bundle(write_release(tmp_path / "fits", artefact_for(), escalation=rule).path, {})
    assert served(bundle=fits).service.traffic.stable.unlike() == []


async def test_the_safe_mode_of_a_candidate_is_told_as_the_candidates(tmp_path: Path) -> None:
    """The log names it, and the gauge stays that of the stable release until it becomes that."""
    log = io.BytesIO()
    configure_logging("info", log)
    rule = {"kind": "calibrated", "price_per_pair": 0.05, "safe_top_m": 3, "calibration": digest_for()}
    written = write_release(tmp_path, escalation=rule)
    written.calibration.unlink()
    sidecar = served()
    candidate = sidecar.service.open_release(load_bundle(written.path, {}))
    await candidate.start()
    sidecar.service.traffic.split(candidate, 0.5)
    (line,) = map(orjson.loads, log.getvalue().splitlines())
    assert (line["event"], line["candidate"]) == ("safe mode", candidate.name)
    assert (await sidecar.metrics())["cascade_safe_mode"] == 0
    sidecar.service.traffic.activate(candidate)
    assert (await sidecar.metrics())["cascade_safe_mode"] == 1
    await candidate.aclose()


async def test_a_release_that_cannot_be_made_leaves_nothing() -> None:
    """No stage is held, and the stable one is as it was."""
    models = Models()
    sidecar = served(models)
    before = list(sidecar.service.pool)
    with pytest.raises(ConfigError):
        sidecar.service.open_release(bundled("bad", stages={"small": stage_of("s", serializer="unknown@1")}))
    assert list(sidecar.service.pool) == before


async def test_a_fault_of_ours_while_a_release_is_made_leaves_nothing_either() -> None:
    """Its stages are given back before anybody has it, and what it would have shared stays open."""
    models, loop, broken = Models(), asyncio.get_running_loop(), [False]

    def clock() -> float:
        if broken[0]:
            raise RuntimeError("no clock")
        return loop.time()

    def build(name: StageName, spec: StageSpec) -> Closable:
        broken[0] = spec.model == "test/breaks"
        return models.build(name, spec)

    sidecar = sidecar_of(build=build, bundle=bundled(), clock=clock)
    before = list(sidecar.service.pool)
    with pytest.raises(RuntimeError, match="no clock"):
        sidecar.service.open_release(bundled("bad", stages={"small": stage_of("small"), "large": stage_of("breaks")}))
    assert list(sidecar.service.pool) == before


async def test_what_is_scored_beside_answers_ends_with_its_release(tmp_path: Path) -> None:
    """In mode observe: before the stages that it asks are closed. The records of both releases are in one file."""
    record_file = tmp_path / "records.jsonl"
    path = tmp_path / "release.yaml"
    with listening(FakeTei()) as url:
        stage = {"adapter": "tei", "url": url, "model": "m", "engine": "e"}
        written: dict[str, Any] = {
            "release": "observes-1",
            "mode": "observe",
            "stages": {"small": stage, "large": dict(stage)},
            "depth": 5,
            "escalation": {"kind": "static", "top_m": 5},
            "budgets": {"total_ms": 2000, "small_ms": 800, "large_ms": 800, "reserve_ms": 10},
        }
        path.write_text(yaml.safe_dump(written), encoding="utf-8")
        async with open_service(Settings(release=path, record_file=record_file), {}) as service:
            first = service.traffic.stable
            await _ask(first)
            path.write_text(yaml.safe_dump(written | {"release": "observes-2"}), encoding="utf-8")
            second = service.open_release(load_bundle(path, {}))
            assert second.stages == first.stages
            await second.start()
            await _ask(second)  # for nobody yet, so it is not recorded
            service.traffic.activate(second)
            await first.aclose()
            await _ask(second)
    lines = [orjson.loads(line) for line in record_file.read_bytes().splitlines()]
    decisions = [(line["release"], line["arm"]) for line in lines if line["kind"] == "decision"]
    assert decisions == [("observes-1", "stable"), ("observes-2", "stable")]


def _seen(sidecar: Sidecar) -> Any:
    return len(asyncio.all_tasks()), len(list(sidecar.service.pool)), len(sidecar.service.under_way._parts)


def test_a_hundred_activations_leave_nothing_behind() -> None:
    """No task, no stage and no release is left of those that went; requests went on all the while."""

    async def play() -> None:
        models = Models()
        sidecar = served(models, bundle=bundled(levels=LEVELS))
        traffic = sidecar.service.traffic
        await traffic.stable.start()
        await _turns()
        before = _seen(sidecar)
        gone: list[weakref.ref[ActiveRelease]] = []
        for number in range(100):
            fields = {"stages": {"small": stage_of("small"), "large": stage_of(f"large-{number}")}, "levels": LEVELS}
            release = await another(sidecar, f"release-{number}", **fields)
            traffic.split(release, 0.5)
            assert (await sidecar.post("/rerank", {"query": f"q{number}", "texts": TEXTS})).status_code == 200
            old = traffic.activate(release)
            gone.append(weakref.ref(old))
            await old.aclose()
            del old, release
        await _turns()
        gc.collect()
        assert _seen(sidecar) == before
        assert [reference() for reference in gone] == [None] * 100
        assert [stage.closed for name, _, stage in models.made if name is StageName.LARGE] == [1] * 100 + [0]
        assert models.of("small").closed == 0
        assert sum(stage.started for name, _, stage in models.made if name is StageName.SMALL) == 1
        exposed = await sidecar.metrics()
        assert [name for name in exposed if name.startswith("cascade_release_info")] == [
            name for name in exposed if 'release="release-99"' in name
        ]

    run_virtual(play())
