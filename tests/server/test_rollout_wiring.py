"""The desk of a service: bundles of a folder or uploaded, shadowed and split over real releases, kept for a restart."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml

from cascade.calibration.artefact import artefact_digest
from cascade.errors import ConfigError
from cascade.rollout.activation import ActivationStep, Refused
from cascade.rollout.artefacts import artefact_name
from cascade.rollout.bundle import build_bundle, load_bundle, sign_bundle
from cascade.rollout.desk import Desk
from cascade.rollout.history import KeptCandidate, StateFile
from cascade.rollout.judge import shown_before
from cascade.rollout.shadow import GoldQueries
from cascade.rollout.signing import make_keys, read_signing_key
from cascade.rollout.store import ReleaseStore
from cascade.server.active import ActiveRelease
from cascade.server.building import built_service
from cascade.server.rollout_start import begun
from cascade.server.rollout_wiring import open_desk
from cascade.server.service import Service
from cascade.server.settings import Settings
from tests.rollout.bundles import last_good
from tests.rollout.desk_fakes import release_data, write_release


@dataclass(frozen=True, slots=True)
class Opened:
    """A service and its desk."""

    service: Service
    desk: Desk[ActiveRelease]


def _bundle(folder: Path, name: str, **changes: Any) -> Path:
    path = folder / "releases" / name / "release.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(release_data(name, **changes), sort_keys=False), encoding="utf-8")
    return path


@asynccontextmanager
async def _opened(folder: Path, **settings: Any) -> AsyncIterator[Opened]:
    """Serve r1, of no stage, with a desk as `cascade serve` has it."""
    given = Settings(
        **{
            "release": _bundle(folder, "r1"),
            "releases_folder": folder / "releases",
            "state_folder": folder / "state",
            "strict_activation": False,
        }
        | settings
    )
    async with (
        begun(given, {}) as start,
        built_service(given, {}, choices=start.choices) as service,
        open_desk(service, given, start, {}) as desk,
    ):
        await service.traffic.stable.start()
        yield Opened(service, desk)


async def test_a_release_of_the_folder_is_split_promoted_and_kept(tmp_path: Path) -> None:
    """By its name; the status tells its steps and how soon harm is met; as the stable one it is the last good one."""
    _bundle(tmp_path, "r2")
    async with _opened(tmp_path) as opened:
        foreseen = await opened.desk.foresee("r2")
        assert (foreseen["release"], foreseen["steps"]) == ("r2", [1.0, 5.0, 25.0, 100.0])
        assert (
            len(ReleaseStore(tmp_path / "state" / "releases").digests()) == 1
        )  # nothing is kept for having been looked at
        status = await opened.desk.start("r2")
        assert (status["state"], status["share"]) == ("running", 0.01)
        assert {row["seconds"] for row in status["rollback_within"]} == {None}  # no request came yet
        assert {"late", "errors"} <= {row["guardrail"] for row in status["rollback_within"]}
        traffic = opened.service.traffic
        assert (traffic.stable.name, traffic.share) == ("r1", 0.01)
        with pytest.raises(ConfigError, match="not shown yet"):
            await opened.desk.promote()
        for _ in range(3):
            status = await opened.desk.promote(force=True)
        assert (status["state"], status["stable"]["release"], traffic.stable.name) == ("completed", "r2", "r2")
        ended = opened.service.metrics.registry.get_sample_value("cascade_rollouts_total", {"outcome": "completed"})
        assert ended == 1
    good = last_good(ReleaseStore(tmp_path / "state" / "releases"))
    assert good is not None
    assert good.name == "r2"


async def test_what_is_unknown_or_refused_changes_nothing(tmp_path: Path) -> None:
    """An unknown name is an error; a release whose judged queries are not there is refused, and r1 serves on."""
    _bundle(tmp_path, "r2", rollout={"smoke": [{"query": "kingfisher", "documents": ["a", "b"], "first": 1}]})
    async with _opened(tmp_path) as opened:
        with pytest.raises(ConfigError, match="no release of this name"):
            await opened.desk.start("r9")
        with pytest.raises(Refused) as refused:
            await opened.desk.start("r2")
        assert refused.value.why == ("smoke query 0: document 0 came first, not document 1",)
        assert (opened.service.traffic.stable.name, opened.service.traffic.candidate) == ("r1", None)


async def test_an_uploaded_bundle_must_be_signed(tmp_path: Path) -> None:
    """With release keys a signed tar is taken and started by its digest; an unsigned one is not taken at all."""
    make_keys(tmp_path / "key.pem", tmp_path / "keys.pem")
    key = read_signing_key(tmp_path / "key.pem")
    tars = {}
    for name in ("r1", "r2"):
        plain, signed = tmp_path / f"{name}.tar", tmp_path / f"{name}-signed.tar"
        build_bundle(_bundle(tmp_path, name), plain, {})
        sign_bundle(plain, signed, {}, key)
        tars[name] = (plain, signed)
    settings = {"release": tars["r1"][1], "release_keys_file": tmp_path / "keys.pem"}
    async with _opened(tmp_path, **settings) as opened:
        for bundle, step, said in (
            (tars["r2"][0].read_bytes(), ActivationStep.SIGNATURE, "it is not signed"),
            (b"no tar", ActivationStep.READ, "uploaded"),
        ):
            with pytest.raises(Refused, match=said) as refused:
                await opened.desk.put(bundle)
            assert refused.value.step is step
        digest = await opened.desk.put(tars["r2"][1].read_bytes())
        assert (await opened.desk.start(digest, at_once=True))["stable"]["release"] == "r2"


async def test_judged_queries_of_releases_that_asked_none_are_not_gathered(tmp_path: Path) -> None:
    """Of releases that decided everything at once, or were refused later, at most the last one's are in memory."""
    before = _judged_in_memory()
    for name in ("g1", "g2", "g3"):
        written = {"text": name, "documents": [{"text": "a", "gain": 1}, {"text": "b", "gain": 0}]}
        gold = orjson.dumps({"format": "cascade-gold/1", "queries": [written]})
        digest = artefact_digest(gold)
        path = _bundle(tmp_path, name, rollout={"gold": digest})
        (path.parent / "artifacts").mkdir()
        (path.parent / "artifacts" / artefact_name(digest)).write_bytes(gold)
    async with _opened(tmp_path) as opened:
        for name in ("g1", "g2", "g3"):
            assert (await opened.desk.start(name, at_once=True))["stable"]["release"] == name
        assert _judged_in_memory() - before == 1


def _judged_in_memory() -> int:
    gc.collect()
    return sum(isinstance(each, GoldQueries) for each in gc.get_objects())


async def test_without_keys_nothing_is_uploaded(tmp_path: Path) -> None:
    """Else whoever may start a release could name any server."""
    async with _opened(tmp_path) as opened:
        with pytest.raises(ConfigError, match="release_keys_file"):
            await opened.desk.put(b"")


async def test_the_end_gives_the_candidate_back_and_a_start_goes_on_with_it(tmp_path: Path) -> None:
    """No task is left; the next desk brings the candidate in again at the step where it was."""
    _bundle(tmp_path, "r2")
    before = asyncio.all_tasks()
    async with _opened(tmp_path) as opened:
        await opened.desk.start("r2")
        await opened.desk.promote(force=True)
    assert asyncio.all_tasks() == before
    async with _opened(tmp_path) as opened:
        loop = asyncio.create_task(opened.desk.run())
        async with asyncio.timeout(20):
            while opened.service.traffic.candidate is None:  # noqa: ASYNC110 - it is another task that sets it
                await asyncio.sleep(0.01)
        assert (opened.service.traffic.stable.name, opened.service.traffic.share) == ("r1", 0.05)
        loop.cancel()
        await asyncio.gather(loop, return_exceptions=True)


async def test_a_candidate_that_killed_its_process_twice_is_taken_back_with_what_it_had_shown(tmp_path: Path) -> None:
    """The next start does not bring it in; the numbers that were kept of it are in the history."""
    _bundle(tmp_path, "r2")
    file = StateFile(tmp_path / "state")
    async with _opened(tmp_path) as opened:
        await opened.desk.start("r2")
        await opened.desk.promote(force=True)
        killed = file.read()
    assert killed is not None
    assert killed.candidate is not None
    file.write(killed.model_copy(update={"candidate": killed.candidate.model_copy(update={"attempts": 2})}))
    async with _opened(tmp_path) as opened:
        loop = asyncio.create_task(opened.desk.run())
        async with asyncio.timeout(20):
            while opened.desk.status()["state"] != "rolled_back":  # noqa: ASYNC110 - it is another task that sets it
                await asyncio.sleep(0.01)
        assert (opened.service.traffic.stable.name, opened.service.traffic.candidate) == ("r1", None)
        (told,) = [each for each in opened.desk.history() if each["what"] == "rolled_back"]
        assert told["why"] == ["the process was killed 2 times in a row while it was activated or tried"]
        assert {"late", "errors"} <= {each["name"] for each in told["evidence"]["guardrails"]}
        loop.cancel()
        await asyncio.gather(loop, return_exceptions=True)


@pytest.mark.parametrize("is_gone", [True, False])
def test_of_a_candidate_whose_bundle_cannot_be_used_any_more_nothing_is_shown(tmp_path: Path, is_gone: bool) -> None:
    """It is taken back all the same: gone, or of a serializer that this version does not know."""
    stage = {"adapter": "tei", "url": "http://u.test", "model": "m", "engine": "tei/1.9"}
    stable = write_release(tmp_path, "r1", depth=5, stages={"small": stage})
    left = write_release(tmp_path, "r2", depth=5, stages={"small": stage | {"serializer": "unknown@9"}})
    path = tmp_path / "gone.tar" if is_gone else left.path
    kept = KeptCandidate(release="r2", digest=left.digest, path=str(path), asked_at="t")
    assert shown_before(load_bundle(stable.path, {}).loaded.release, kept) == {"guardrails": []}
