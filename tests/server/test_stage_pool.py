"""Stages that releases share."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from cascade.errors import ConfigError
from cascade.guard.deadline import Deadline
from cascade.policy.release import StageSpec
from cascade.server.stage_pool import StageLease, StagePool
from cascade.stages.base import Stage
from cascade.stages.build import build_stage
from cascade.stages.engine.workers import worker_pool
from cascade.testing.stages import ScriptedStage
from cascade.testing.upstream import overlap
from cascade.text import Text
from cascade.types import BreakerState, StageName
from tests.server.releases import Closable, Models, stage_of
from tests.server.sidecar import release_of


def _pool(models: Models) -> StagePool:
    return StagePool(lambda name, spec, budget_ms: models.build(name, spec))


def _stages(**models: str) -> dict[str, Any]:
    return {name: stage_of(model) for name, model in models.items()}


async def test_equal_stages_are_shared_and_closed_with_their_last_release() -> None:
    """The small stage of both is one; the large ones differ. Each is started and closed once."""
    models = Models()
    pool = _pool(models)
    first = pool.lease(release_of(stages=_stages(small="s", large="l1")))
    second = pool.lease(release_of(stages=_stages(small="s", large="l2")))
    assert first.stages[StageName.SMALL] is second.stages[StageName.SMALL]
    assert first.stages[StageName.LARGE] is not second.stages[StageName.LARGE]
    await asyncio.gather(first.start(), second.start())
    await first.aclose()
    assert [(model, stage.started, stage.closed) for _, model, stage in models.made] == [
        ("test/s", 1, 0), ("test/l1", 1, 1), ("test/l2", 1, 0),
    ]  # fmt: skip
    await second.aclose()
    await second.aclose()
    assert [stage.closed for _, _, stage in models.made] == [1, 1, 1]
    assert not list(pool)


async def test_a_stage_that_was_closed_is_made_anew() -> None:
    """A release that comes back later finds none that is closed."""
    models = Models()
    pool = _pool(models)
    release = release_of(stages=_stages(small="s"), escalation="none")
    lease = pool.lease(release)
    await lease.start()
    await lease.aclose()
    again = pool.lease(release)
    await again.start()
    assert [(stage.started, stage.closed) for _, _, stage in models.made] == [(1, 1), (1, 0)]


async def test_the_same_model_as_small_and_as_large_is_two_stages() -> None:
    """Each has its own place in metrics and in the pipeline."""
    lease = _pool(Models()).lease(release_of(stages=_stages(small="m", large="m")))
    assert lease.stages[StageName.SMALL] is not lease.stages[StageName.LARGE]


async def test_a_release_whose_stage_cannot_be_made_takes_none() -> None:
    """What the one before shares stays whole, and the stage that could be made is not kept."""
    models = Models()

    def build(name: StageName, spec: StageSpec, budget_ms: float) -> Closable:
        if spec.model == "test/bad":
            raise ConfigError("no token")
        return models.build(name, spec)

    pool = StagePool(build)
    stable = pool.lease(release_of(stages=_stages(small="s", large="l")))
    with pytest.raises(ConfigError, match="no token"):
        pool.lease(release_of(stages=_stages(small="s2", large="bad")))
    assert [pooled.stage for pooled in pool] == list(stable.stages.values())


async def test_a_start_that_fails_is_told_and_tried_again_by_the_next() -> None:
    """All have ended to start by then, so that nothing runs on behind the error."""
    ended = []

    class Picky(Closable):
        async def start(self) -> None:
            await super().start()
            await asyncio.sleep(0)
            ended.append(self.started)
            if self.started == 1:
                raise ConfigError("the weights are not there")

    pool = StagePool(lambda name, spec, budget_ms: Picky(overlap))
    release = release_of(stages=_stages(small="s", large="l"))
    lease = pool.lease(release)
    with pytest.raises(ConfigError, match="weights"):
        await lease.start()
    assert ended == [1, 1]
    await lease.start()
    assert ended == [1, 1, 2, 2]
    await lease.start()
    assert ended == [1, 1, 2, 2]


async def test_a_lease_that_was_never_used_is_dropped_at_once() -> None:
    """Shared stages stay, others are gone."""
    models = Models()
    pool = _pool(models)
    first = pool.lease(release_of(stages=_stages(small="s", large="l")))
    second = pool.lease(release_of(stages=_stages(small="s", large="l2")))
    second.drop()
    assert [pooled.stage for pooled in pool] == list(first.stages.values())


async def test_the_most_patient_release_says_what_is_slow_for_a_server() -> None:
    """A round of 200 ms is no failure of the server's while a release gives 500, and is one when only 100 are given."""
    now = [0.0]
    spec = stage_of("m", breaker={"consecutive": 1})

    async def answer(request: httpx.Request) -> httpx.Response:
        now[0] += 0.2
        return httpx.Response(200, json=[{"index": 0, "score": 0.5}])

    def build(name: StageName, spec: StageSpec, budget_ms: float) -> Stage:
        return build_stage(
            name,
            spec,
            budget_ms=budget_ms,
            clock=lambda: now[0],
            pool=threads,
            environment={},
            transport_for=lambda spec: httpx.MockTransport(answer),
        )

    def lease(small_ms: float) -> StageLease:
        budgets = {"total_ms": 2000.0, "small_ms": small_ms, "large_ms": 100.0, "reserve_ms": 10.0}
        return pool.lease(release_of(stages={"small": spec}, escalation="none", budgets=budgets))

    async def breaker() -> BreakerState:
        stage = quick.stages[StageName.SMALL]
        deadline = Deadline.after_ms(10_000, lambda: now[0])
        await stage.score(Text("q"), [Text("a")], deadline=deadline, call_id="id")
        assert stage.guarded is not None
        return stage.guarded.breaker

    with worker_pool(1) as threads:
        pool = StagePool(build)
        quick, patient = lease(100.0), lease(500.0)
        assert quick.stages[StageName.SMALL] is patient.stages[StageName.SMALL]
        assert await breaker() is BreakerState.CLOSED
        await patient.aclose()
        assert await breaker() is BreakerState.OPEN
        await quick.aclose()


def test_a_scripted_stage_is_allowed_nothing() -> None:
    """Only a stage behind HTTP has a breaker to be told what is slow."""
    pool = StagePool(lambda name, spec, budget_ms: ScriptedStage(overlap))
    assert set(pool.lease(release_of()).stages) == {StageName.SMALL, StageName.LARGE}
