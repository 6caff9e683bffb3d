"""A release that cannot be served does not keep a start from serving another, and what was taken back is the last."""

from __future__ import annotations

import asyncio
import io
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from cascade.errors import ConfigError
from cascade.policy.release import StageSpec
from cascade.rollout.history import Happened, StateFile
from cascade.rollout.store import ReleaseStore
from cascade.server.building import start_stages
from cascade.server.service import Service
from cascade.server.showing import show_now
from cascade.server.start_choices import Place, StartChoices
from cascade.server.status import status
from cascade.testing.upstream import overlap
from cascade.types import StageName
from tests.server.releases import Closable, Models, bundled, served, stage_of
from tests.server.starts import GONE, NO_TOKEN, LeftState, events, passed_over, serving, write
from tests.stages.engine.arrange import until


@pytest.mark.parametrize(("broken", "step"), [(GONE, "start"), (NO_TOKEN, "load")])
@pytest.mark.parametrize("watched", [True, False])
async def test_a_stable_release_that_does_not_start_leaves_the_last_good_one(
    tmp_path: Path, log: io.BytesIO, broken: dict[str, Any], step: str, watched: bool
) -> None:
    """It serves and is the stable one by now; log, status and history tell why the other does not."""
    named = write(tmp_path / "release.yaml", "named")
    state = LeftState(tmp_path, seen=named)
    good = state.serves("r1")
    bad = state.serves("r2", **broken)
    async with serving(tmp_path, watch_release=watched) as (service, desk):
        assert service.traffic.stable.name == "r1"
        assert service.started
        assert passed_over(service) == [("r2", step)]
        told = desk.status()
        assert (told["stable"]["digest"], told["refused"]["digest"], told["refused"]["step"]) == (good, bad, step)
        assert [(entry["what"], entry["release"]) for entry in desk.history()] == [("served", "r1"), ("refused", "r2")]
        assert service.metrics.registry.get_sample_value("cascade_rollouts_total", {"outcome": "refused"}) == 1
    (event,) = events(log, "a release cannot be served at this start")
    assert (event["level"], event["release"], event["step"]) == ("error", "r2", step)
    assert state.store.goods()[0] == good


async def test_what_a_start_passed_over_is_in_a_metric_until_another_release_is_stable(tmp_path: Path) -> None:
    """So that an alert sees it: counters of a process begin with it."""
    write(tmp_path / "release.yaml", "r2")
    state = LeftState(tmp_path)
    earlier = state.serves("r0")
    state.serves("r1")
    state.serves("r2", **GONE)

    def shown(service: Service) -> float | None:
        show_now(service)
        return service.metrics.registry.get_sample_value("cascade_start_passed_over")

    async with serving(tmp_path, watch_release=True) as (service, desk):
        assert (service.traffic.stable.name, shown(service)) == ("r1", 1.0)
        await desk.start(earlier, at_once=True, lenient=True)
        assert (service.traffic.stable.name, shown(service)) == ("r0", 0.0)
    async with serving(tmp_path, watch_release=True) as (service, _):
        assert shown(service) == 0.0


async def test_where_no_good_one_starts_the_named_one_serves(tmp_path: Path) -> None:
    """Each that does not is told of, in the order tried; nothing of them is left running."""
    write(tmp_path / "release.yaml", "named")
    state = LeftState(tmp_path)
    state.serves("r1", **GONE)
    state.damage(state.serves("r2"))
    state.serves("r3", **NO_TOKEN)
    before = asyncio.all_tasks()
    async with serving(tmp_path, watch_release=True) as (service, _):
        assert service.traffic.stable.name == "named"
        assert [step for _, step in passed_over(service)] == ["load", "read", "start"]
        assert list(service.pool) == []
    assert asyncio.all_tasks() == before


async def test_where_none_starts_the_error_names_every_reason(tmp_path: Path) -> None:
    """And what failed is not noted as a release that was good."""
    write(tmp_path / "release.yaml", "named", **NO_TOKEN)
    state = LeftState(tmp_path)
    stable = state.serves("r1", **GONE)
    with pytest.raises(
        ConfigError, match=r"^no release can be served: r1: start: .*/no/such.*; named: load: .*CASCADE_GONE"
    ):
        async with serving(tmp_path, watch_release=True):
            pytest.fail("it started")
    assert state.store.goods() == [stable]


async def test_a_named_release_that_does_not_start_is_the_one_error(tmp_path: Path) -> None:
    """Alone, its error is told as it is, and nothing is remembered of it."""
    write(tmp_path / "release.yaml", "named", **GONE)
    with pytest.raises(ConfigError, match=r"^small: weights|^weights"):
        async with serving(tmp_path):
            pytest.fail("it started")
    assert StateFile(tmp_path / "state").read() is None
    assert ReleaseStore(tmp_path / "state" / "releases").goods() == []


async def test_a_release_that_settings_name_anew_and_does_not_start_leaves_the_stable_one(tmp_path: Path) -> None:
    """The one that decided all traffic goes on, and the named one is tried again at the next start."""
    state = LeftState(tmp_path, seen="sha256:" + "0" * 64)
    state.serves("r1")
    write(tmp_path / "release.yaml", "named", **GONE)
    for _ in range(2):
        async with serving(tmp_path) as (service, _):
            assert service.traffic.stable.name == "r1"
            assert passed_over(service) == [("named", "start")]


@pytest.mark.parametrize("watched", [True, False])
async def test_a_lost_stable_release_does_not_bring_in_what_was_rolled_back(tmp_path: Path, watched: bool) -> None:
    """The last good one serves, although settings still name what guardrails took back."""
    named = write(tmp_path / "release.yaml", "bad")
    state = LeftState(tmp_path, seen=named)
    state.serves("r0")
    stable = state.serves("r1")
    state.took(Happened.ROLLED_BACK, "bad", named)
    state.damage(stable)
    async with serving(tmp_path, watch_release=watched) as (service, desk):
        assert service.traffic.stable.name == "r0"
        assert desk.status()["refused"]["release"] == "r1"
        assert status(service)["start"]["taken_back"] is False


@pytest.mark.parametrize("what", [Happened.ROLLED_BACK, Happened.ABORTED])
async def test_what_was_taken_back_serves_where_nothing_else_can_and_that_is_told(
    tmp_path: Path, log: io.BytesIO, what: Happened
) -> None:
    """In the log and in the status."""
    named = write(tmp_path / "release.yaml", "bad")
    state = LeftState(tmp_path, seen=named)
    stable = state.serves("r1")
    state.took(what, "bad", named)
    state.damage(stable)
    async with serving(tmp_path, watch_release=True) as (service, _):
        assert service.traffic.stable.name == "bad"
        assert status(service)["start"]["taken_back"] is True
    (event,) = events(log, "a release serves that a rollout took back")
    assert (event["level"], event["release"], event["why"]) == ("error", "bad", "no other can be served")


async def test_a_good_release_that_was_taken_back_later_comes_behind_the_named_one(tmp_path: Path) -> None:
    """It decided all traffic once, and was then shown to be worse; one that got all traffic since is good again."""
    named = write(tmp_path / "release.yaml", "named")
    state = LeftState(tmp_path, seen=named)
    old = state.serves("r1")
    state.damage(state.serves("r2"))
    state.took(Happened.ROLLED_BACK, "r1", old)
    async with serving(tmp_path, watch_release=True) as (service, _):
        assert service.traffic.stable.name == "named"
    state = LeftState(tmp_path)
    state.damage(named)
    state.took(Happened.COMPLETED, "r1", old)
    write(tmp_path / "release.yaml", "other")
    async with serving(tmp_path, watch_release=True) as (service, _):
        assert service.traffic.stable.name == "r1"


async def test_that_the_state_cannot_be_kept_is_in_the_status_and_a_gauge(tmp_path: Path) -> None:
    """Until it can: answers and the rollout go on meanwhile."""
    write(tmp_path / "release.yaml", "r1")
    in_its_place = tmp_path / "state" / "rollout.json"
    in_its_place.mkdir(parents=True)

    async with serving(tmp_path) as (service, desk):
        service.desk = desk
        running = asyncio.create_task(desk.run())
        shown = partial(service.metrics.registry.get_sample_value, "cascade_rollout_state_unkept")
        await until(lambda: status(service)["rollout"]["state_fault"] == "Is a directory")
        assert shown() == 1
        in_its_place.rmdir()
        await until(lambda: status(service)["rollout"]["state_fault"] is None)
        assert shown() == 0
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    assert StateFile(tmp_path / "state").read() is not None


async def test_a_state_that_is_lost_leaves_the_last_good_one_where_the_release_is_watched(tmp_path: Path) -> None:
    """What is desired by now comes in by its steps."""
    write(tmp_path / "release.yaml", "named")
    state = LeftState(tmp_path)
    state.serves("r1")
    (tmp_path / "state" / "rollout.json").write_bytes(b"{")
    async with serving(tmp_path, watch_release=True) as (service, _):
        assert service.traffic.stable.name == "r1"


async def test_a_pinned_level_that_only_the_named_release_has_ends_no_start(tmp_path: Path, log: io.BytesIO) -> None:
    """The stable one steps by itself, and the log says so; of the named one it is an error of the settings."""
    levels = [{"name": "normal"}, {"name": "degraded-1", "stages": "none"}]
    named = write(tmp_path / "release.yaml", "named", levels=levels)
    LeftState(tmp_path, seen=named).serves("r1")
    async with serving(tmp_path, level="degraded-1") as (service, _):
        assert service.traffic.stable.name == "r1"
    (event,) = events(log, "no level of the pinned name")
    assert event["release"] == "r1"
    with pytest.raises(ConfigError, match="no level of that name"):
        async with serving(tmp_path, level="degraded-9", state_folder=None):
            pytest.fail("it started")


class _Faulty(Models):
    """Stages of which those of the model ``faulty`` do not start for a fault of ours."""

    def build(self, name: StageName, spec: StageSpec) -> Closable:
        stage = super().build(name, spec)
        return _Broken(overlap) if spec.model == "test/faulty" else stage


class _Broken(Closable):
    async def start(self) -> None:
        raise TypeError("canary")


async def test_a_fault_of_ours_at_the_start_of_one_release_leaves_another() -> None:
    """It is counted, and told by its type alone."""
    bad = bundled("bad", stages={"small": stage_of("faulty")}, escalation="none")
    good = bundled("good")
    served_by = served(_Faulty(), bundle=bad, started=False)
    service = served_by.service
    service.choices = StartChoices(
        [Place("sha256:bad", "bad", lambda: bad), Place("sha256:good", "good", lambda: good)]
    )
    await start_stages(service)
    assert (service.started, service.traffic.stable.name) == (True, "good")
    assert [one.why for one in service.choices.passed_over] == ["an internal fault: TypeError"]
    assert (await served_by.metrics())["cascade_internal_faults_total"] == 1
    await service.traffic.stable.aclose()
