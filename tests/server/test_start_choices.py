"""A release that cannot be served does not keep a start from serving another, and what was taken back is the last."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import orjson
import pytest
import yaml

from cascade.errors import ConfigError
from cascade.policy.release import StageSpec, release_digest
from cascade.rollout.desk import Desk
from cascade.rollout.history import Entry, Happened, KeptCandidate, KeptRelease, Remembered, StateFile
from cascade.rollout.store import ReleaseStore
from cascade.rollout.unsettled import UnsettledStarts
from cascade.server.active import ActiveRelease
from cascade.server.building import built_service, start_stages
from cascade.server.rollout_start import StateWithStore, begun
from cascade.server.rollout_wiring import open_desk
from cascade.server.service import Service
from cascade.server.settings import Settings
from cascade.server.start_choices import Place, StartChoices
from cascade.server.status import status
from cascade.telemetry.logs import configure_logging
from cascade.testing.upstream import overlap
from cascade.types import StageName
from tests.rollout.desk_fakes import release_data
from tests.server.releases import Closable, Models, bundled, served, stage_of
from tests.stages.engine.arrange import until

_GONE: Final[dict[str, Any]] = {
    "depth": 5,
    "stages": {"small": {"adapter": "onnx", "model": "m", "engine": "onnxruntime", "weights": {"folder": "/no/such"}}},
}
"""Of a release that loads and does not start: the weights are gone."""
_NO_TOKEN: Final[dict[str, Any]] = {
    "depth": 5,
    "stages": {
        "small": {
            "adapter": "tei",
            "url": "http://u.test",
            "model": "m",
            "engine": "tei/1.9",
            "auth": {"env": "CASCADE_GONE"},
        }
    },
}
"""Of a release that loads, and whose stages cannot be built."""


@pytest.fixture
def log() -> io.BytesIO:
    """Log into memory."""
    stream = io.BytesIO()
    configure_logging("info", stream)
    return stream


def _events(log: io.BytesIO, event: str) -> list[dict[str, Any]]:
    return [line for line in map(orjson.loads, log.getvalue().splitlines()) if line["event"] == event]


def _write(path: Path, name: str, **changes: Any) -> str:
    data = release_data(name, **changes)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(data, sort_keys=False), encoding="utf-8")
    return release_digest(data)


class _State:
    """What an earlier process left: releases that decided all traffic, the last of them the stable one."""

    def __init__(self, folder: Path, *, seen: str | None = None) -> None:
        self.store = ReleaseStore(folder / "state" / "releases")
        self._folder = folder
        self._file = StateFile(folder / "state")
        self._keeps = StateWithStore(self._file, self.store)
        self._seen = seen

    def serves(self, name: str, **changes: Any) -> str:
        """Have a release be the stable one; return its digest."""
        path = self._folder / "earlier" / f"{name}.yaml"
        digest = _write(path, name, **changes)
        self.store.put(path)
        before = self._file.read() or Remembered(seen=self._seen)
        stable = KeptRelease(release=name, digest=digest, activated_at="t")
        self._keeps.write(before.model_copy(update={"stable": stable}))
        return digest

    def damage(self, digest: str) -> None:
        path = self.store.path(digest)
        assert path is not None
        path.write_bytes(b"damaged")

    def took(self, what: Happened, name: str, digest: str) -> None:
        """Have something have happened to a release."""
        before = self._file.read()
        assert before is not None
        self._file.write(before.with_entry(Entry(at="t", what=what, release=name, digest=digest)))


@asynccontextmanager
async def _serving(folder: Path, **settings: Any) -> AsyncIterator[tuple[Service, Desk[ActiveRelease]]]:
    """Start as ``cascade serve`` does, and give the service and its desk."""
    given = Settings(**{"release": folder / "release.yaml", "state_folder": folder / "state"} | settings)
    async with begun(given, {}) as start, built_service(given, {}, choices=start.choices) as service:
        await start_stages(service)
        async with open_desk(service, given, start, {}) as desk:
            yield service, desk


def _passed_over(service: Service) -> list[tuple[str, str]]:
    return [(one["release"], one["step"]) for one in status(service)["start"]["passed_over"]]


@pytest.mark.parametrize(("broken", "step"), [(_GONE, "start"), (_NO_TOKEN, "load")])
@pytest.mark.parametrize("watched", [True, False])
async def test_a_stable_release_that_does_not_start_leaves_the_last_good_one(
    tmp_path: Path, log: io.BytesIO, broken: dict[str, Any], step: str, watched: bool
) -> None:
    """It serves and is the stable one by now; log, status and history tell why the other does not."""
    named = _write(tmp_path / "release.yaml", "named")
    state = _State(tmp_path, seen=named)
    good = state.serves("r1")
    bad = state.serves("r2", **broken)
    async with _serving(tmp_path, watch_release=watched) as (service, desk):
        assert service.traffic.stable.name == "r1"
        assert service.started
        assert _passed_over(service) == [("r2", step)]
        told = desk.status()
        assert (told["stable"]["digest"], told["refused"]["digest"], told["refused"]["step"]) == (good, bad, step)
        assert [(entry["what"], entry["release"]) for entry in desk.history()] == [("served", "r1"), ("refused", "r2")]
        assert service.metrics.registry.get_sample_value("cascade_rollouts_total", {"outcome": "refused"}) == 1
    (event,) = _events(log, "a release cannot be served at this start")
    assert (event["level"], event["release"], event["step"]) == ("error", "r2", step)
    assert state.store.goods()[0] == good


async def test_where_no_good_one_starts_the_named_one_serves(tmp_path: Path) -> None:
    """Each that does not is told of, in the order tried; nothing of them is left running."""
    _write(tmp_path / "release.yaml", "named")
    state = _State(tmp_path)
    state.serves("r1", **_GONE)
    state.damage(state.serves("r2"))
    state.serves("r3", **_NO_TOKEN)
    before = asyncio.all_tasks()
    async with _serving(tmp_path, watch_release=True) as (service, _):
        assert service.traffic.stable.name == "named"
        assert [step for _, step in _passed_over(service)] == ["load", "read", "start"]
        assert list(service.pool) == []
    assert asyncio.all_tasks() == before


async def test_where_none_starts_the_error_names_every_reason(tmp_path: Path) -> None:
    """And what failed is not noted as a release that was good."""
    _write(tmp_path / "release.yaml", "named", **_NO_TOKEN)
    state = _State(tmp_path)
    stable = state.serves("r1", **_GONE)
    with pytest.raises(
        ConfigError, match=r"^no release can be served: r1: start: .*/no/such.*; named: load: .*CASCADE_GONE"
    ):
        async with _serving(tmp_path, watch_release=True):
            pytest.fail("it started")
    assert state.store.goods() == [stable]


async def test_a_named_release_that_does_not_start_is_the_one_error(tmp_path: Path) -> None:
    """Alone, its error is told as it is, and nothing is remembered of it."""
    _write(tmp_path / "release.yaml", "named", **_GONE)
    with pytest.raises(ConfigError, match=r"^small: weights|^weights"):
        async with _serving(tmp_path):
            pytest.fail("it started")
    assert StateFile(tmp_path / "state").read() is None
    assert ReleaseStore(tmp_path / "state" / "releases").goods() == []


async def test_a_release_that_settings_name_anew_and_does_not_start_leaves_the_stable_one(tmp_path: Path) -> None:
    """The one that decided all traffic goes on, and the named one is tried again at the next start."""
    state = _State(tmp_path, seen="sha256:" + "0" * 64)
    state.serves("r1")
    _write(tmp_path / "release.yaml", "named", **_GONE)
    for _ in range(2):
        async with _serving(tmp_path) as (service, _):
            assert service.traffic.stable.name == "r1"
            assert _passed_over(service) == [("named", "start")]


@pytest.mark.parametrize("watched", [True, False])
async def test_a_lost_stable_release_does_not_bring_in_what_was_rolled_back(tmp_path: Path, watched: bool) -> None:
    """The last good one serves, although settings still name what guardrails took back."""
    named = _write(tmp_path / "release.yaml", "bad")
    state = _State(tmp_path, seen=named)
    state.serves("r0")
    stable = state.serves("r1")
    state.took(Happened.ROLLED_BACK, "bad", named)
    state.damage(stable)
    async with _serving(tmp_path, watch_release=watched) as (service, desk):
        assert service.traffic.stable.name == "r0"
        assert desk.status()["refused"]["release"] == "r1"
        assert status(service)["start"]["taken_back"] is False


@pytest.mark.parametrize("what", [Happened.ROLLED_BACK, Happened.ABORTED])
async def test_what_was_taken_back_serves_where_nothing_else_can_and_that_is_told(
    tmp_path: Path, log: io.BytesIO, what: Happened
) -> None:
    """In the log and in the status."""
    named = _write(tmp_path / "release.yaml", "bad")
    state = _State(tmp_path, seen=named)
    stable = state.serves("r1")
    state.took(what, "bad", named)
    state.damage(stable)
    async with _serving(tmp_path, watch_release=True) as (service, _):
        assert service.traffic.stable.name == "bad"
        assert status(service)["start"]["taken_back"] is True
    (event,) = _events(log, "a release serves that a rollout took back")
    assert (event["level"], event["release"], event["why"]) == ("error", "bad", "no other can be served")


async def test_a_good_release_that_was_taken_back_later_comes_behind_the_named_one(tmp_path: Path) -> None:
    """It decided all traffic once, and was then shown to be worse; one that got all traffic since is good again."""
    named = _write(tmp_path / "release.yaml", "named")
    state = _State(tmp_path, seen=named)
    old = state.serves("r1")
    state.damage(state.serves("r2"))
    state.took(Happened.ROLLED_BACK, "r1", old)
    async with _serving(tmp_path, watch_release=True) as (service, _):
        assert service.traffic.stable.name == "named"
    state = _State(tmp_path)
    state.damage(named)
    state.took(Happened.COMPLETED, "r1", old)
    _write(tmp_path / "release.yaml", "other")
    async with _serving(tmp_path, watch_release=True) as (service, _):
        assert service.traffic.stable.name == "r1"


def _killed(folder: Path, digest: str, times: int) -> None:
    """Leave behind what so many processes do that were killed before their start with a release had settled."""
    for _ in range(times):
        UnsettledStarts(folder / "state" / "releases").begin(digest)


@pytest.mark.parametrize("watched", [True, False])
async def test_a_stable_release_that_kills_its_process_again_and_again_leaves_the_last_good_one(
    tmp_path: Path, log: io.BytesIO, watched: bool
) -> None:
    """After three starts that did not settle; it is told as one that cannot be served, and does not come back by itself."""
    state = _State(tmp_path)
    good = state.serves("r1")
    bad = state.serves("r2")
    assert _write(tmp_path / "release.yaml", "r2") == bad
    _killed(tmp_path, bad, 2)
    async with _serving(tmp_path, watch_release=watched) as (service, _):
        assert service.traffic.stable.name == "r2"
    _killed(tmp_path, bad, 3)
    async with _serving(tmp_path, watch_release=watched) as (service, desk):
        assert service.traffic.stable.name == "r1"
        assert _passed_over(service) == [("r2", "start")]
        told = desk.status()
        assert (told["stable"]["digest"], told["refused"]["digest"], told["refused"]["step"]) == (good, bad, "start")
        assert told["refused"]["why"] == [
            "the process was killed 3 times in a row before it had served for 60 s with it"
        ]
        assert desk.history()[1]["what"] == "refused"
    (event,) = _events(log, "a release cannot be served at this start")
    assert (event["level"], event["release"]) == ("error", "r2")
    async with _serving(tmp_path, watch_release=watched) as (service, _):
        assert service.traffic.stable.name == "r1"
        assert _passed_over(service) == []


@pytest.mark.parametrize("other", ["none", "taken back", "killed too", "gone"])
async def test_a_release_that_kills_its_process_serves_where_no_good_one_can(
    tmp_path: Path, log: io.BytesIO, other: str
) -> None:
    """It may have been something else, and nothing would answer else; no one tells then that it does not serve."""
    state = _State(tmp_path)
    if other != "none":
        before = state.serves("r1", **(_GONE if other == "gone" else {}))
    stable = state.serves("r2")
    if other == "taken back":
        state.took(Happened.ROLLED_BACK, "r1", before)
    if other == "killed too":
        _killed(tmp_path, before, 3)
    _write(tmp_path / "release.yaml", "r2")
    _killed(tmp_path, stable, 3)
    passed_over = [("r1", "start")] if other == "gone" else []
    async with _serving(tmp_path, watch_release=True) as (service, desk):
        assert service.traffic.stable.name == "r2"
        assert _passed_over(service) == passed_over
        assert [entry["release"] for entry in desk.history() if entry["what"] == "refused"][:1] == [
            name for name, _ in passed_over
        ]
    assert ("r1", "start") in passed_over or _events(log, "a release cannot be served at this start") == []


async def test_a_start_is_counted_from_before_its_stages_are_made_until_it_ends(tmp_path: Path) -> None:
    """Whoever is killed in between leaves it counted; not while a candidate is tried, which may be the reason."""
    state = _State(tmp_path)
    stable = state.serves("r1")
    _write(tmp_path / "release.yaml", "r1")
    settings = Settings(release=tmp_path / "release.yaml", state_folder=tmp_path / "state")

    async def counted() -> list[int]:
        async with begun(settings, {}):
            under_way = UnsettledStarts(state.store.folder).count(stable)
        return [under_way, UnsettledStarts(state.store.folder).count(stable)]

    assert await counted() == [1, 0]
    file = StateFile(tmp_path / "state")
    before = file.read()
    assert before is not None
    candidate = KeptCandidate(release="r2", digest="sha256:" + "2" * 64, path="r2", asked_at="t")
    file.write(before.model_copy(update={"candidate": candidate}))
    assert await counted() == [0, 0]


async def test_that_the_state_cannot_be_kept_is_in_the_status_and_a_gauge(tmp_path: Path) -> None:
    """Until it can: answers and the rollout go on meanwhile."""
    _write(tmp_path / "release.yaml", "r1")
    in_its_place = tmp_path / "state" / "rollout.json"
    in_its_place.mkdir(parents=True)

    async with _serving(tmp_path) as (service, desk):
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
    _write(tmp_path / "release.yaml", "named")
    state = _State(tmp_path)
    state.serves("r1")
    (tmp_path / "state" / "rollout.json").write_bytes(b"{")
    async with _serving(tmp_path, watch_release=True) as (service, _):
        assert service.traffic.stable.name == "r1"


async def test_a_pinned_level_that_only_the_named_release_has_ends_no_start(tmp_path: Path, log: io.BytesIO) -> None:
    """The stable one steps by itself, and the log says so; of the named one it is an error of the settings."""
    levels = [{"name": "normal"}, {"name": "degraded-1", "stages": "none"}]
    named = _write(tmp_path / "release.yaml", "named", levels=levels)
    _State(tmp_path, seen=named).serves("r1")
    async with _serving(tmp_path, level="degraded-1") as (service, _):
        assert service.traffic.stable.name == "r1"
    (event,) = _events(log, "no level of the pinned name")
    assert event["release"] == "r1"
    with pytest.raises(ConfigError, match="no level of that name"):
        async with _serving(tmp_path, level="degraded-9", state_folder=None):
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
