"""A start serves what is desired, what decided all traffic before, or what was good last, and says why."""

from __future__ import annotations

import io
import socket
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml

from cascade.errors import ConfigError
from cascade.policy.release import release_digest
from cascade.rollout.history import KeptCandidate, KeptRelease, Remembered, RolloutState, StateFile
from cascade.rollout.store import ReleaseStore
from cascade.server.rollout_start import StateWithStore, begun
from cascade.server.settings import Settings
from tests.rollout.bundles import last_good
from tests.rollout.desk_fakes import release_data


def _events(log: io.BytesIO) -> list[dict[str, Any]]:
    return [orjson.loads(line) for line in log.getvalue().splitlines()]


def _write(path: Path, name: str, **changes: Any) -> str:
    data = release_data(name, **changes)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(data, sort_keys=False), encoding="utf-8")
    return release_digest(data)


def _names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


def _settings(folder: Path, **more: Any) -> Settings:
    return Settings(**{"release": folder / "release.yaml", "state_folder": folder / "state"} | more)


async def _start(settings: Settings) -> tuple[str, Remembered]:
    """Return which release a start serves, and what it goes on with."""
    async with begun(settings, {}) as start:
        return start.choices.bundle.loaded.release.release, start.remembered


def _left(folder: Path, name: str, seen: str | None) -> str:
    """Leave behind what a process kept that served a release; return the release's digest."""
    digest = _write(folder / "earlier" / "release.yaml", name)
    store = ReleaseStore(folder / "state" / "releases")
    store.put(folder / "earlier" / "release.yaml")
    stable = KeptRelease(release=name, digest=digest, activated_at="t")
    remembered = Remembered(state=RolloutState.COMPLETED, stable=stable, seen=seen)
    StateWithStore(StateFile(folder / "state"), store).write(remembered)
    return digest


async def test_what_settings_name_is_served_and_kept(tmp_path: Path) -> None:
    """With a state folder a later start finds it there; what was named is remembered."""
    digest = _write(tmp_path / "release.yaml", "r1")
    name, remembered = await _start(_settings(tmp_path))
    assert (name, remembered.seen) == ("r1", digest)
    assert ReleaseStore(tmp_path / "state" / "releases").path(digest) is not None


async def test_without_a_state_folder_nothing_is_kept(tmp_path: Path) -> None:
    """The release is served as ever, and nothing is left on disk."""
    _write(tmp_path / "release.yaml", "r1")
    assert (await _start(_settings(tmp_path, state_folder=None)))[0] == "r1"
    assert _names(tmp_path) == ["release.yaml"]


async def test_the_packaged_release_is_served_where_none_is_named(tmp_path: Path) -> None:
    """No setting is needed but the state folder; variables of its stages come from the environment."""
    environment = {"CASCADE_SMALL_URL": "http://small.test", "CASCADE_LARGE_URL": "http://large.test"}
    async with begun(Settings(state_folder=tmp_path / "state"), environment) as start:
        assert start.choices.bundle.loaded.release.release.startswith("default")


@pytest.mark.parametrize("content", [b"release: [", b"release: r1\nunknown: 1\n"])
async def test_a_release_that_cannot_be_used_leaves_the_last_good_one(
    tmp_path: Path, log: io.BytesIO, content: bytes
) -> None:
    """It serves, and the log says what is wrong with the one that was desired."""
    _left(tmp_path, "r0", seen=None)
    (tmp_path / "release.yaml").write_bytes(content)
    assert (await _start(_settings(tmp_path)))[0] == "r0"
    (event,) = [each for each in _events(log) if each["level"] == "error"]
    assert event["event"] == "the release that is desired cannot be used; the last good one serves"
    assert "release.yaml" in event["why"]
    assert event["release"] == "r0"


async def test_without_a_good_one_a_release_that_cannot_be_used_ends_the_start(tmp_path: Path) -> None:
    """The error names the file and what is wrong, as ever."""
    (tmp_path / "release.yaml").write_bytes(b"release: r1\nunknown: 1\n")
    with pytest.raises(ConfigError, match=r"release\.yaml.*unknown"):
        await _start(_settings(tmp_path))
    with pytest.raises(ConfigError, match=r"release\.yaml.*unknown"):
        await _start(_settings(tmp_path, watch_release=True))


async def test_a_watched_release_comes_in_by_its_steps_after_a_restart(tmp_path: Path) -> None:
    """What decided all traffic before is served, and what is desired by now is not counted as dealt with."""
    digest = _left(tmp_path, "r0", seen="sha256:" + "0" * 64)
    _write(tmp_path / "release.yaml", "r1")
    name, remembered = await _start(_settings(tmp_path, watch_release=True))
    assert (name, remembered.seen) == ("r0", "sha256:" + "0" * 64)
    assert remembered.stable is not None
    assert remembered.stable.digest == digest


async def test_a_watched_release_that_is_the_stable_one_is_served(tmp_path: Path) -> None:
    """Then there is nothing to be brought in."""
    digest = _left(tmp_path, "r0", seen=None)
    assert _write(tmp_path / "release.yaml", "r0") == digest
    assert (await _start(_settings(tmp_path, watch_release=True)))[0] == "r0"


async def test_where_the_stable_release_is_lost_the_desired_one_is_served(tmp_path: Path) -> None:
    """A bundle that is damaged is as one that is not there."""
    digest = _left(tmp_path, "r0", seen=None)
    kept = ReleaseStore(tmp_path / "state" / "releases").path(digest)
    assert kept is not None
    kept.write_bytes(b"damaged")
    desired = _write(tmp_path / "release.yaml", "r1")
    name, remembered = await _start(_settings(tmp_path, watch_release=True))
    assert (name, remembered.seen) == ("r1", desired)


async def test_an_operators_release_outlives_a_restart_until_settings_name_another(tmp_path: Path) -> None:
    """What settings named all along does not undo it; a release that they name anew is served at once."""
    named = _write(tmp_path / "release.yaml", "r1")
    _left(tmp_path, "by-operator", seen=named)
    assert (await _start(_settings(tmp_path)))[0] == "by-operator"
    _write(tmp_path / "release.yaml", "r2")
    assert (await _start(_settings(tmp_path)))[0] == "r2"


async def test_a_state_that_cannot_be_read_is_told_and_left(tmp_path: Path, log: io.BytesIO) -> None:
    """The process starts as if nothing were known."""
    _write(tmp_path / "release.yaml", "r1")
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "rollout.json").write_text("{", encoding="utf-8")
    name, remembered = await _start(_settings(tmp_path))
    assert (name, remembered.stable) == ("r1", None)
    assert "rollout state is lost" in [event["event"] for event in _events(log)]


async def test_a_release_that_lacks_an_artefact_serves_and_is_not_kept(tmp_path: Path, log: io.BytesIO) -> None:
    """As ever its safe mode decides; that a later start would not find it is told."""
    digest = "sha256:" + "1" * 64
    _write(tmp_path / "release.yaml", "r1", evidence={"report": digest})
    assert (await _start(_settings(tmp_path)))[0] == "r1"
    assert "what serves cannot be kept for a later start" in [event["event"] for event in _events(log)]
    assert ReleaseStore(tmp_path / "state" / "releases").digests() == []


async def test_an_address_that_does_not_answer_leaves_the_last_good_one(tmp_path: Path, log: io.BytesIO) -> None:
    """So a start needs nobody else; without a good one it ends with the fault."""
    nowhere = "http://127.0.0.1:9/release.tar"
    with pytest.raises(ConfigError):
        await _start(_settings(tmp_path, release=nowhere))
    _left(tmp_path, "r0", seen=None)
    assert (await _start(_settings(tmp_path, release=nowhere, watch_release=True)))[0] == "r0"


async def test_an_address_that_hangs_holds_no_start_up_where_something_is_kept(tmp_path: Path, log: io.BytesIO) -> None:
    """Else who watches the start would end it before it had served, again and again."""
    _left(tmp_path, "r0", seen=None)
    with socket.create_server(("127.0.0.1", 0)) as nobody:  # whoever connects is never answered
        address = f"http://127.0.0.1:{nobody.getsockname()[1]}/release.tar"
        settings = _settings(tmp_path, release=address, watch_release=True)
        async with begun(settings, {}, first_look_s=0.05) as start:
            assert start.choices.bundle.loaded.release.release == "r0"
    (event,) = [each for each in _events(log) if each["level"] == "error"]
    assert event["why"] == "it was not there after 0.05 seconds; it is looked at again"


def test_what_is_remembered_is_held_by_the_store(tmp_path: Path) -> None:
    """The stable release is the last good one from when it is remembered as such."""
    _left(tmp_path, "r0", seen=None)
    good = last_good(ReleaseStore(tmp_path / "state" / "releases"))
    assert good is not None
    assert good.name == "r0"


def test_a_store_that_cannot_be_written_is_an_error_of_the_disk(tmp_path: Path) -> None:
    """Who keeps the state takes it as such, and goes on; without a file nothing but the store is told."""
    store = ReleaseStore(tmp_path / "releases")
    remembered = Remembered(stable=KeptRelease(release="r1", digest="sha256:" + "1" * 64, activated_at="t"))
    StateWithStore(None, store).write(remembered)
    (tmp_path / "releases" / "good.json").unlink()
    (tmp_path / "releases" / "good.json").mkdir()
    with pytest.raises(OSError, match=r"good\.json"):
        StateWithStore(None, store).write(remembered)


async def test_a_kept_release_that_can_no_longer_be_used_is_told(tmp_path: Path, log: io.BytesIO) -> None:
    """It names a variable that is not set by now: what settings name serves."""
    stage = {"adapter": "tei", "url": "${GONE}", "model": "m", "engine": "tei/1.9"}
    digest = _write(tmp_path / "earlier" / "release.yaml", "r0", stages={"small": stage}, depth=5)
    store = ReleaseStore(tmp_path / "state" / "releases")
    store.put(tmp_path / "earlier" / "release.yaml")
    stable = KeptRelease(release="r0", digest=digest, activated_at="t")
    StateWithStore(StateFile(tmp_path / "state"), store).write(Remembered(stable=stable))
    _write(tmp_path / "release.yaml", "r1")
    assert (await _start(_settings(tmp_path, watch_release=True)))[0] == "r1"
    (event,) = [each for each in _events(log) if each["event"] == "a release cannot be served at this start"]
    assert "GONE" in event["why"]


def _damage(folder: Path, digest: str) -> None:
    path = ReleaseStore(folder / "state" / "releases").path(digest)
    assert path is not None
    path.write_bytes(b"damaged")


@pytest.mark.parametrize("gone", [False, True])
async def test_a_kept_release_that_is_damaged_is_taken_anew_from_the_folder_of_releases(
    tmp_path: Path, log: io.BytesIO, gone: bool
) -> None:
    """The stable release goes on, nothing is passed over, and the store is whole again."""
    named = _write(tmp_path / "release.yaml", "named")
    digest = _left(tmp_path, "r1", seen=named)
    _write(tmp_path / "releases" / "any" / "release.yaml", "r1")
    store = ReleaseStore(tmp_path / "state" / "releases")
    _damage(tmp_path, digest)
    if gone:
        (store.folder / f"{digest.removeprefix('sha256:')}.tar").unlink()
    async with begun(_settings(tmp_path, releases_folder=tmp_path / "releases"), {}) as start:
        assert (start.choices.bundle.loaded.digest, start.choices.passed_over) == (digest, [])
    assert store.path(digest) is not None
    told = [each["release"] for each in _events(log) if each["event"].startswith("a kept release was damaged")]
    assert told == ([] if gone else ["r1"])


@pytest.mark.parametrize("watched", [True, False])
async def test_a_kept_release_that_is_damaged_is_taken_anew_from_where_settings_name_it(
    tmp_path: Path, log: io.BytesIO, watched: bool
) -> None:
    """Where it is the same release."""
    digest = _write(tmp_path / "release.yaml", "r1")
    assert _left(tmp_path, "r1", seen=digest) == digest
    _damage(tmp_path, digest)
    async with begun(_settings(tmp_path, watch_release=watched), {}) as start:
        assert (start.choices.bundle.loaded.digest, start.choices.passed_over) == (digest, [])
    assert ReleaseStore(tmp_path / "state" / "releases").path(digest) is not None
    assert [each["event"] for each in _events(log)] == ["a kept release was damaged; it is whole again"]


async def test_a_damaged_candidate_is_taken_anew_too(tmp_path: Path) -> None:
    """So that it goes on from its step."""
    _write(tmp_path / "release.yaml", "r1")
    digest = _write(tmp_path / "releases" / "r2" / "release.yaml", "r2", depth=3)
    store = ReleaseStore(tmp_path / "state" / "releases")
    path = store.put(tmp_path / "releases" / "r2" / "release.yaml").path
    candidate = KeptCandidate(release="r2", digest=digest, path=str(path), asked_at="t")
    StateWithStore(StateFile(tmp_path / "state"), store).write(Remembered(candidate=candidate))
    _damage(tmp_path, digest)
    async with begun(_settings(tmp_path, releases_folder=tmp_path / "releases"), {}):
        assert store.path(digest) == path


async def test_two_processes_do_not_share_a_state_folder(tmp_path: Path) -> None:
    """The second start is refused before it reads or clears away anything; after the first has ended another may."""
    _write(tmp_path / "release.yaml", "r1")
    async with begun(_settings(tmp_path), {}):
        with pytest.raises(
            ConfigError, match=r"^state_folder .*/state is in use by another process; give each its own$"
        ):
            await _start(_settings(tmp_path))
    assert (await _start(_settings(tmp_path)))[0] == "r1"


async def test_a_state_folder_that_cannot_be_made_ends_the_start(tmp_path: Path) -> None:
    """It says which, and what the system says."""
    (tmp_path / "state").write_bytes(b"")
    with pytest.raises(ConfigError, match=r"^state_folder .*/state: cannot be used: "):
        await _start(_settings(tmp_path))


async def test_a_folder_of_releases_that_is_not_there_is_told_at_the_start(tmp_path: Path, log: io.BytesIO) -> None:
    """Not only when somebody asks for a release in it."""
    _write(tmp_path / "release.yaml", "r1")
    await _start(_settings(tmp_path, releases_folder=tmp_path / "none"))
    (event,) = _events(log)
    assert (event["level"], event["place"]) == ("warning", str(tmp_path / "none"))
    (tmp_path / "none").mkdir()
    await _start(_settings(tmp_path, releases_folder=tmp_path / "none"))
    assert len(_events(log)) == 1
