"""Activation over real releases: whatever fails, the stable release answers on and nothing of the new one is left."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from cascade.errors import ConfigError, StageInvalidAnswer, StageUnreachable
from cascade.policy.release import StageSpec, release_digest
from cascade.rollout.activation import Activation, ActivationStep, Asked, Refused
from cascade.rollout.signing import ReleaseKeys
from cascade.server.active import ActiveRelease
from cascade.stages.base import Observed
from cascade.testing.clock import run_virtual
from cascade.testing.upstream import overlap
from cascade.types import StageName
from tests.rollout.desk_fakes import inline
from tests.server.releases import TEXTS, Closable, Models, served, stage_of
from tests.server.sidecar import BODIES, Sidecar

_STEPS = list(ActivationStep)


def _paris_first(query: str, text: str) -> float:
    """Score as a reranker that knows the pairs of a probe."""
    return 5.0 if text.startswith("Paris is") else overlap(query, text)


def _written(folder: Path, **fields: Any) -> Asked:
    """Write a candidate that shares the small stage with `bundled`, and has another large one."""
    data: dict[str, Any] = {
        "release": "candidate-1",
        "stages": {"small": stage_of("small"), "large": stage_of("large-2")},
        "depth": 50,
        "escalation": {"kind": "static", "top_m": 20},
        "budgets": {"total_ms": 1000.0, "small_ms": 400.0, "large_ms": 500.0, "reserve_ms": 20.0},
        "rollout": {"smoke": [{"query": "blue heron", "documents": ["bread", "a blue heron"], "first": 1}]},
    } | fields
    path = folder / "candidate.yaml"
    path.write_text(yaml.safe_dump(data, sort_keys=False), encoding="utf-8")
    return Asked(path, release_digest(data), lenient=True)


class _Unstartable(Closable):
    """A stage whose start fails."""

    async def start(self) -> None:
        raise ConfigError("large stage: the model is not there")


class _Models(Models):
    """Models of which the candidate's own large one does not start where told so."""

    def __init__(self, *, starts: bool, **scripted: Any) -> None:
        super().__init__(**scripted)
        self._starts = starts

    def build(self, name: StageName, spec: StageSpec) -> Closable:
        stage = super().build(name, spec)
        if not self._starts and spec.model == "test/large-2":
            stage = _Unstartable(_paris_first)
            self.made[-1] = (name, spec.model, stage)
        return stage


def _models(step: ActivationStep) -> Models:
    """Return stages of which the candidate's own large one fails at a step."""
    wrong: dict[ActivationStep, dict[str, Any]] = {
        ActivationStep.PROBE: {"score_of": lambda query, text: 0.0},
        ActivationStep.FINGERPRINT: {"observed": Observed(model="test/another")},
    }
    right = {"score_of": _paris_first}
    return _Models(
        starts=step is not ActivationStep.START,
        **{"small": right, "large": right, "large-2": right | wrong.get(step, {})},
    )


def _arranged(
    sidecar: Sidecar, models: Models, step: ActivationStep, folder: Path
) -> tuple[Activation[Any], Asked, Any]:
    """Return an activation that fails at a step, what it is asked for, and how it swaps."""
    traffic = sidecar.service.traffic
    asked = _written(folder, probe="enforce")

    def build(bundle: Any) -> ActiveRelease:
        if step is ActivationStep.LOAD:
            raise ConfigError("large stage: no such serializer")
        return sidecar.service.open_release(bundle)

    def swap(release: ActiveRelease) -> None:
        traffic.split(release, 1.5 if step is ActivationStep.SWAP else 0.5)

    clock = asyncio.get_running_loop().time
    activation = Activation({}, build, clock=clock, count_fault=sidecar.service.faults, off_loop=inline)
    if step is ActivationStep.READ:
        asked.path.write_bytes(b"release: [")
    elif step is ActivationStep.SIGNATURE:
        activation.keys = lambda: ReleaseKeys({})
    elif step is ActivationStep.VERIFY:
        asked = Asked(asked.path, "sha256:" + "0" * 64, lenient=True)
    elif step is ActivationStep.SMOKE:
        activation.began = _then_fails(models)
    return activation, asked, swap


def _then_fails(models: Models) -> Callable[[ActivationStep], None]:
    def began(step: ActivationStep) -> None:
        if step is ActivationStep.SMOKE:
            models.of("large-2").fails = StageInvalidAnswer

    return began


_WHY = {
    ActivationStep.READ: "candidate.yaml",
    ActivationStep.SIGNATURE: "a YAML file cannot be signed",
    ActivationStep.VERIFY: "not the one asked for",
    ActivationStep.LOAD: "no such serializer",
    ActivationStep.START: "the model is not there",
    ActivationStep.PROBE: "large stage: constant",
    ActivationStep.SMOKE: "smoke query 0: degraded: stage_invalid_answer",
    ActivationStep.FINGERPRINT: "large stage: model: declared test/large-2, the server says test/another",
    ActivationStep.SWAP: "an internal fault: ValueError",
}


async def _ask(sidecar: Sidecar) -> str:
    response = await sidecar.post("/rerank", BODIES["tei"]("kingfisher", TEXTS))
    assert response.status_code == 200, response.text
    assert "x-cascade-degraded" not in response.headers
    return response.headers["x-cascade-release"]


async def _asking(sidecar: Sidecar, stop: asyncio.Event) -> list[str]:
    """Ask all the time; return which release answered each."""
    answered = []
    while not stop.is_set():
        answered.append(await _ask(sidecar))
        await asyncio.sleep(0.0005)
    return answered


@pytest.mark.parametrize("step", _STEPS)
def test_h2_a_fault_at_any_step_under_traffic_leaves_the_old_release_whole(
    tmp_path: Path, step: ActivationStep
) -> None:
    """Every request is answered by the old release, in full; the new one's stages are closed, shared ones stay open."""

    async def scenario() -> None:
        models = _models(step)
        sidecar = served(models)
        service = sidecar.service
        stable = service.traffic.stable
        await stable.start()
        tasks = asyncio.all_tasks()
        activation, asked, swap = _arranged(sidecar, models, step, tmp_path)
        stop = asyncio.Event()
        asking = asyncio.create_task(_asking(sidecar, stop))
        await asyncio.sleep(0.01)
        with pytest.raises(Refused) as refused:
            await activation.run(asked, swap)
        await asyncio.sleep(0.01)
        stop.set()
        answered = await asking
        assert refused.value.step is step
        assert _WHY[step] in refused.value.why[0]
        assert set(answered) == {"stable-1"}
        assert len(answered) > 10
        assert (service.traffic.stable, service.traffic.candidate, service.traffic.share) == (stable, None, 0.0)
        assert stable._shared.opened == {stable}
        assert asyncio.all_tasks() == tasks
        assert models.of("small").closed == models.of("large").closed == 0
        of_the_new_one = [stage for _, model, stage in models.made if model == "test/large-2"]
        assert all(stage.closed == 1 for stage in of_the_new_one)
        assert bool(of_the_new_one) == (_STEPS.index(step) > _STEPS.index(ActivationStep.LOAD))
        told = await sidecar.metrics()
        shown = [name for name in told if name.startswith("cascade_release_info")]
        assert len(shown) == 1
        assert 'release="stable-1"' in shown[0]

    run_virtual(scenario())


@pytest.mark.parametrize(
    ("probe", "step", "why"),
    [
        ("warn", ActivationStep.PROBE, "large stage: stage_unreachable (scripted)"),
        (
            "off",
            ActivationStep.SMOKE,
            "smoke query 0: degraded: stage_unreachable; large stage: stage_unreachable (scripted)",
        ),
    ],
)
def test_a_server_that_is_down_says_nothing_of_the_release(
    tmp_path: Path, probe: str, step: ActivationStep, why: str
) -> None:
    """Whether or not known pairs are asked, the stage and what happened are told, and it may be tried again."""

    async def scenario() -> None:
        sidecar = served(
            _Models(starts=True, small={"score_of": _paris_first}, **{"large-2": {"fails": StageUnreachable}})
        )
        await sidecar.service.traffic.stable.start()
        clock = asyncio.get_running_loop().time
        build = sidecar.service.open_release
        activation = Activation({}, build, clock=clock, count_fault=sidecar.service.faults, off_loop=inline)
        with pytest.raises(Refused) as refused:
            await activation.run(_written(tmp_path, probe=probe), lambda release: None)
        assert (refused.value.step, refused.value.why, refused.value.passing) == (step, (why,), True)

    run_virtual(scenario())


def test_a_release_that_nothing_speaks_against_takes_its_share(tmp_path: Path) -> None:
    """The same candidate without a fault: it is asked its smoke query, shares the small stage, and decides its half."""

    async def scenario() -> None:
        models = _models(ActivationStep.READ)
        sidecar = served(models)
        await sidecar.service.traffic.stable.start()
        activation, asked, swap = _arranged(sidecar, models, ActivationStep.LOAD, tmp_path)
        activation.build = sidecar.service.open_release
        await activation.run(asked, swap)
        assert sidecar.service.traffic.share == 0.5
        assert sum(model == "test/small" for _, model, _ in models.made) == 1
        assert ["bread", "a blue heron"] in [sorted(call, key=len) for call in models.of("large-2").calls]
        answered = {
            (await sidecar.post("/rerank", BODIES["tei"](f"kingfisher {number}", TEXTS))).headers["x-cascade-release"]
            for number in range(40)
        }
        assert answered == {"stable-1", "candidate-1"}
        gone = sidecar.service.traffic.unsplit()
        assert gone is not None
        await gone.aclose()

    run_virtual(scenario())


def test_smoke_queries_are_in_no_metric_of_users(tmp_path: Path) -> None:
    """What an activation asks is nobody's request: neither counted nor recorded as one."""

    async def scenario() -> None:
        models = _models(ActivationStep.READ)
        sidecar = served(models)
        await sidecar.service.traffic.stable.start()
        activation, asked, _ = _arranged(sidecar, models, ActivationStep.LOAD, tmp_path)
        activation.build = sidecar.service.open_release
        before = await sidecar.metrics()
        release = await activation.run(asked, lambda release: None)
        await release.aclose()
        after = await sidecar.metrics()
        users = ("cascade_requests_total", "cascade_arm_requests_total", "cascade_stage_rounds_total")
        assert {name: value for name, value in after.items() if name.startswith(users)} == {
            name: value for name, value in before.items() if name.startswith(users)
        }

    run_virtual(scenario())
