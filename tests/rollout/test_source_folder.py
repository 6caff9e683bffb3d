"""The desired release as files, whoever writes them and however: half-written, swapped, unnoticed."""

from __future__ import annotations

import asyncio
import shutil
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any, Final

import pytest

from cascade.rollout.bundle import build_bundle
from cascade.rollout.load import load_release
from cascade.rollout.signing import keys_in
from cascade.rollout.source import open_source
from cascade.rollout.sources.desired import Desired
from cascade.rollout.sources.folder import Events, FolderSource, concerns, file_events
from cascade.rollout.sources.looking import Looking
from cascade.rollout.store import ReleaseStore
from cascade.testing.clock import run_virtual

from .arrange import write_release
from .bundles import KEY, key_file, looking, packed

_FORMS: Final = ("release.yaml", "bundle", "bundle.tar")


async def _no_events(path: Path) -> AsyncIterator[None]:
    """Tell of no change at all: every event is dropped."""
    await asyncio.Event().wait()
    yield


def _written(folder: Path, form: str, **changes: Any) -> tuple[Path, str]:
    """Write a sound release in a form; return where it is and its digest."""
    written = write_release(folder / "written", **changes)
    if form == "release.yaml":
        return written.path, load_release(written.path, {}).digest
    path = folder / form
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    return path, build_bundle(written.path, path, {}).digest


def _source(
    folder: Path, path: Path, *, how: Looking | None = None, events: Events = _no_events, keys: Path | None = None
) -> FolderSource:
    return FolderSource(path, ReleaseStore(folder / "store", keys_in(keys)), how or looking(), events=events)


async def _steps(source: FolderSource, *steps: Callable[[], object]) -> list[Desired]:
    """Return the first change, and the one after each step that is then done."""
    found: list[Desired] = []
    async with aclosing(source.changes()) as changes:
        for step in (*steps, None):
            found.append(await anext(changes))
            if step is not None:
                step()
    return found


@pytest.mark.parametrize("form", _FORMS)
def test_h1_a_change_is_found_though_every_event_is_dropped(tmp_path: Path, form: str) -> None:
    """Nothing hangs on an event: the next look, at most 36 s later, sees what is there."""
    path, first = _written(tmp_path, form)
    digests: list[str] = []

    async def run() -> tuple[list[Desired], float]:
        found = await _steps(
            _source(tmp_path, path), lambda: digests.append(_written(tmp_path, form, release="r2", depth=20)[1])
        )
        return found, asyncio.get_running_loop().time()

    found, took_s = run_virtual(run())
    assert [one.digest for one in found] == [first, *digests]
    assert [one.name for one in found] == ["r1", "r2"]
    assert [one.fault for one in found] == [None, None]
    assert took_s < 2 * 36
    assert found[1].path_in_store is not None
    assert load_release(found[1].path_in_store, {}).digest == digests[0]


def test_what_is_there_is_known_after_a_restart(tmp_path: Path) -> None:
    """The state is looked at anew; a store that lost the bundle has it again."""
    path, digest = _written(tmp_path, "bundle")
    assert run_virtual(_source(tmp_path, path).now()).digest == digest
    shutil.rmtree(tmp_path / "store")
    found = run_virtual(_source(tmp_path, path).now())
    assert found.path_in_store is not None
    assert found.path_in_store.is_file()


def _cut(path: Path) -> None:
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])


def _unlinked(path: Path) -> None:
    path.unlink()


def _unknown_field(path: Path) -> None:
    path.write_text(path.read_text() + "depht: 3\n")


@pytest.mark.parametrize(
    ("form", "file", "change", "told"),
    [
        ("bundle.tar", "", _cut, "not a tar, or damaged"),
        ("bundle.tar", "", _unlinked, "cannot be read: FileNotFoundError"),
        ("bundle", "release.yaml", _unlinked, "cannot be read: FileNotFoundError"),
        ("bundle", "release.yaml", _unknown_field, "depht: Extra inputs are not permitted"),
        ("bundle", "artifacts/*.json", _unlinked, "no file has this digest"),
        ("bundle", "artifacts/*.json", _cut, "it was altered"),
        ("release.yaml", "", _unlinked, "cannot be read: FileNotFoundError"),
        ("release.yaml", "../calibration/fitted.json", _unlinked, "no file has this digest"),
    ],
)
def test_what_cannot_be_used_is_told_and_the_last_good_stands(
    tmp_path: Path, form: str, file: str, change: Callable[[Path], None], told: str
) -> None:
    """And when it is mended, the fault is gone without anybody doing anything here."""
    path, digest = _written(tmp_path, form)
    place = min((path if path.is_dir() else path.parent).glob(file)) if file else path
    whole = place.read_bytes()
    steps = (lambda: change(place), lambda: place.write_bytes(whole))
    found = run_virtual(_steps(_source(tmp_path, path), *steps))
    assert [one.digest for one in found] == [digest] * 3
    assert found[1].fault is not None
    assert told in found[1].fault
    assert found[1].path_in_store == found[0].path_in_store
    assert found[2] == found[0]


def test_what_is_unsigned_is_told_and_the_last_good_stands(tmp_path: Path) -> None:
    """With keys, a YAML file never is desired, and an unsigned bundle does not take a signed one's place."""
    signed, digest = packed(tmp_path, KEY)
    path = tmp_path / "bundle.tar"
    path.write_bytes(signed)
    keys = key_file(tmp_path, KEY)
    unsigned = packed(tmp_path, depth=20)[0]
    found = run_virtual(_steps(_source(tmp_path, path, keys=keys), lambda: path.write_bytes(unsigned)))
    assert [one.digest for one in found] == [digest] * 2
    assert found[1].fault is not None
    assert found[1].fault.endswith("it is not signed, and release keys are set: sign it with cascade release sign")
    yaml = run_virtual(_source(tmp_path, _written(tmp_path, "release.yaml")[0], keys=keys).now())
    assert (yaml.digest, yaml.path_in_store) == (None, None)
    assert "make a bundle of it with cascade release build" in str(yaml.fault)


def test_what_is_copied_file_by_file_is_taken_when_it_stands_still(tmp_path: Path) -> None:
    """A file that is cut short may be a release all the same; it is not taken for one between two writes."""
    path, _ = _written(tmp_path, "release.yaml")
    whole = path.read_text()
    short = whole[: whole.index("evidence:")]
    digests: list[str] = []

    async def copy() -> None:
        for text in (short, whole + "mode: cascade\n"):
            path.write_text(text)
            digests.append(load_release(path, {}).digest)
            await asyncio.sleep(0.2)

    async def run() -> Desired:
        copying = asyncio.create_task(copy())
        await asyncio.sleep(0.1)
        found = await _source(tmp_path, path).now()
        await copying
        return found

    found = run_virtual(run())
    assert (found.digest, found.fault) == (digests[1], None)
    assert ReleaseStore(tmp_path / "store").digests() == digests[1:]


def test_what_never_stands_still_is_told(tmp_path: Path) -> None:
    """After five tries; the next look tries again."""
    path, digest = _written(tmp_path, "bundle.tar")

    async def write() -> None:
        for number in range(100):
            path.write_bytes(packed(tmp_path, depth=number + 1)[0])
            await asyncio.sleep(0.2)

    async def run() -> list[Desired]:
        source = _source(tmp_path, path)
        found = [await source.now()]
        writing = asyncio.create_task(write())
        await asyncio.sleep(0.1)
        found.append(await source.now())
        writing.cancel()
        found.append(await source.now())
        return found

    before, meanwhile, after = run_virtual(run())
    assert before.digest == meanwhile.digest == digest
    assert str(meanwhile.fault).endswith("it is being written; it is taken when it stands still")
    assert (after.fault, after.digest != digest) == (None, True)


class _Kubelet:
    """Mount a ConfigMap as kubelet does: each state in a folder of its own, behind one link that is renamed.

    `states` gives control back after every single step of an update, at which a reader may come.
    """

    def __init__(self, mount: Path) -> None:
        self.mount = mount
        self._number = 0

    def states(self, files: dict[str, bytes]) -> Iterator[str]:
        """Write a new state step by step."""
        self._number += 1
        name = f"..2026_11_30_00_00_{self._number:02}.1234"
        before = (self.mount / "..data").readlink() if (self.mount / "..data").is_symlink() else None
        new = self.mount / name
        new.mkdir(parents=True)
        yield "an empty folder of the new state"
        for file, data in files.items():
            (new / file).parent.mkdir(exist_ok=True)
            (new / file).write_bytes(data[: len(data) // 2])
            yield f"half of {file}"
            (new / file).write_bytes(data)
            yield f"all of {file}"
        (self.mount / "..data_tmp").symlink_to(name)
        yield "the new link aside"
        (self.mount / "..data_tmp").replace(self.mount / "..data")
        yield "the new link"
        for top in dict.fromkeys(file.split("/")[0] for file in files):
            if not (self.mount / top).is_symlink():
                (self.mount / top).symlink_to(f"..data/{top}")
        yield "the links of the user"
        if before is not None:
            shutil.rmtree(self.mount / before)
        yield "the old state gone"


def _files(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("form", ["bundle", "bundle/release.yaml"])
def test_h1_a_mount_of_kubernetes_is_read_in_the_state_of_one_moment(tmp_path: Path, form: str) -> None:
    """Whenever it is looked during an update, it is the old release or the new one, whole, and never a fault."""
    kubelet = _Kubelet(tmp_path / "mount" / "bundle")
    bundles = []
    for number in range(3):
        path, digest = _written(tmp_path, "bundle", depth=10 + number)
        bundles.append((_files(path), digest))
    for _ in kubelet.states(bundles[0][0]):
        pass

    async def run() -> list[list[str | None]]:
        source = _source(tmp_path, tmp_path / "mount" / form)
        assert (await source.now()).digest == bundles[0][1]
        seen = []
        for files, _ in bundles[1:]:
            looks = [await source.now() for _ in kubelet.states(files)]
            assert {one.fault for one in looks} == {None}
            seen.append([one.digest for one in looks])
        return seen

    for (_, old), (_, new), digests in zip(bundles, bundles[1:], run_virtual(run()), strict=False):
        assert digests == [old] * digests.count(old) + [new] * 3
        assert digests.count(old) == len(digests) - 3 > 3


def test_h1_events_of_kubernetes_that_are_lost_delay_and_lose_nothing(tmp_path: Path) -> None:
    """Two updates between two looks: the last one is found."""
    kubelet = _Kubelet(tmp_path / "bundle-mount")
    files = [_files(_written(tmp_path, "bundle", depth=10 + number)[0]) for number in range(3)]
    last = load_release(tmp_path / "bundle", {}).digest

    def update(*states: dict[str, bytes]) -> None:
        for each in states:
            for _ in kubelet.states(each):
                pass

    update(files[0])
    found = run_virtual(_steps(_source(tmp_path, kubelet.mount), lambda: update(files[1], files[2])))
    assert found[1].digest == last
    assert found[0].digest != last


def test_artefacts_beside_a_mounted_yaml_file_are_found(tmp_path: Path) -> None:
    """A calibration mounted beside the folder of policies is still beside it."""
    written = write_release(tmp_path)
    data = written.path.read_bytes()
    written.path.unlink()
    for _ in _Kubelet(written.path.parent).states({"release.yaml": data}):
        pass
    assert open_source(written.path).artefacts.read(written.digest) == written.calibration.read_bytes()


@pytest.mark.parametrize("form", _FORMS)
async def test_an_event_makes_it_look_at_once(tmp_path: Path, form: str) -> None:
    """The system's own events are hints: with an hour between looks, a change is found without waiting for the hour."""
    path, first = _written(tmp_path, form)
    source = _source(tmp_path, path, how=Looking(seconds=3600.0), events=file_events)
    digests: list[str] = []
    async with asyncio.timeout(20):
        found = await _steps(source, lambda: digests.append(_written(tmp_path, form, depth=20)[1]))
    assert [one.digest for one in found] == [first, *digests]


async def test_an_event_of_a_mount_makes_it_look_at_once(tmp_path: Path) -> None:
    """The link that is renamed is what tells."""
    kubelet = _Kubelet(tmp_path / "mount")
    files = [_files(_written(tmp_path, "bundle", depth=10 + number)[0]) for number in range(2)]
    last = load_release(tmp_path / "bundle", {}).digest
    for _ in kubelet.states(files[0]):
        pass
    source = _source(tmp_path, kubelet.mount, how=Looking(seconds=3600.0), events=file_events)
    async with asyncio.timeout(20):
        found = await _steps(source, lambda: deque(kubelet.states(files[1]), maxlen=0))
    assert found[1].digest == last


def test_where_there_is_no_folder_the_look_tells(tmp_path: Path) -> None:
    """A folder that comes later is found by the next look."""

    def come() -> None:
        write_release(tmp_path / "later")

    source = _source(tmp_path, tmp_path / "later" / "policies" / "release.yaml")
    found = run_virtual(_steps(source, come))
    assert str(found[0].fault).endswith("cannot be read: FileNotFoundError")
    assert (found[1].name, found[1].fault) == ("r1", None)


@pytest.mark.parametrize(
    ("changed", "hints"),
    [
        ("bundle", True), ("..data", True), ("bundle/release.yaml", True), ("bundle/artifacts/ab.json", True),
        ("other.log", False), ("bundle.tar", False), ("elsewhere/release.yaml", False),
    ],
)  # fmt: skip
def test_a_file_of_another_name_beside_it_is_no_hint(changed: str, *, hints: bool) -> None:
    """What else lies in the folder may change all the time."""
    assert concerns(Path("/etc/cascade/bundle"), Path("/etc/cascade") / changed) is hints
