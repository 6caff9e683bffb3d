"""Bundles kept by digest: whole, bounded, and there at the next start."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import orjson
import pytest

from cascade.errors import ConfigError
from cascade.rollout.bundle import build_bundle, load_bundle
from cascade.rollout.signing import keys_in
from cascade.rollout.store import ReleaseStore, open_store
from cascade.rollout.tar import parse_tar, tar_bytes

from .arrange import write_release
from .bundles import KEY, OTHER_KEY, key_file, last_good, packed


@pytest.mark.parametrize("name", ["policies/release.yaml", "bundle", "bundle.tar"])
def test_a_bundle_is_kept_under_its_digest_wherever_it_comes_from(tmp_path: Path, name: str) -> None:
    """A YAML file is kept with what it names; the same release makes the same bytes."""
    written = write_release(tmp_path)
    loaded = build_bundle(written.path, tmp_path / "bundle", {})
    build_bundle(written.path, tmp_path / "bundle.tar", {})
    store = ReleaseStore(tmp_path / "store")
    stored = store.put(tmp_path / name)
    assert (stored.digest, stored.name) == (loaded.digest, "r1")
    assert stored.path == store.path(loaded.digest) == tmp_path / "store" / f"{loaded.digest[7:]}.tar"
    assert stored.path.read_bytes() == (tmp_path / "bundle.tar").read_bytes()
    assert store.put((tmp_path / "bundle.tar").read_bytes()) == stored == store.stored(loaded.digest)
    assert load_bundle(stored.path, {}).calibration is not None


def _lacking(part: str) -> Callable[[dict[str, bytes]], dict[str, bytes]]:
    return lambda files: {name: data for name, data in files.items() if part not in name}


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (_lacking("artifacts"), "no file has this digest"),
        (_lacking("release.yaml"), r"no release\.yaml in it"),
        (lambda files: files | {"release.yaml": b"release: r1\n"}, "Field required"),
        (lambda files: files | {"release.yaml": b"a" * 2**21}, r"release\.yaml: larger than 1048576 bytes"),
        (lambda files: files | {"signature.json": b"a" * 5000}, r"signature\.json: larger than 4096 bytes"),
    ],
)
def test_only_what_is_whole_is_kept(
    tmp_path: Path, change: Callable[[dict[str, bytes]], dict[str, bytes]], told: str
) -> None:
    """What is refused leaves nothing behind."""
    data, _ = packed(tmp_path)
    store = ReleaseStore(tmp_path / "store")
    with pytest.raises(ConfigError, match=f"^release uploaded: .*{told}"):
        store.put(tar_bytes(change(parse_tar(data))))
    assert store.digests() == []
    assert [*store.folder.iterdir()] == []


def test_what_was_damaged_on_the_disk_is_not_there(tmp_path: Path) -> None:
    """It is not given out, and the next time that it comes it takes the damaged one's place."""
    data, digest = packed(tmp_path)
    store = ReleaseStore(tmp_path / "store")
    path = store.put(data).path
    for damaged in (data[:2000], b"", data.replace(b"release: r1", b"release: r2")):
        path.write_bytes(damaged)
        assert store.path(digest) is None
        assert store.put(data).path == path
        assert store.path(digest) == path


@pytest.mark.parametrize("digest", ["", "sha256:", "../../etc/passwd", f"sha256:{'AB' * 32}", "sha256:" + "ab" * 33])
def test_what_is_no_digest_is_no_path(tmp_path: Path, digest: str) -> None:
    """Nothing is looked for outside the folder."""
    with pytest.raises(ConfigError, match=r"is no digest of a release$"):
        ReleaseStore(tmp_path / "store").path(digest)


def test_the_newest_are_kept_and_those_that_are_held(tmp_path: Path) -> None:
    """The stable release and the candidate stay however old they are, and so does the last good one."""
    store = ReleaseStore(tmp_path / "store", kept=2)
    digests = []
    for number in range(6):
        stored = store.put(packed(tmp_path, depth=number + 10)[0])
        os.utime(stored.path, (number, number))
        digests.append(stored.digest)
        if number == 0:
            store.good(stored.digest)
        if number == 1:
            store.hold([stored.digest])
    assert set(store.digests()) == {digests[0], digests[1], digests[3], digests[4], digests[5]}
    store.hold([])
    store.good(digests[5])
    store.put(packed(tmp_path, depth=30)[0])
    assert set(store.digests()) >= {digests[0], digests[5]}  # the stable one, and what was good before it
    assert digests[1] not in store.digests()
    assert len(store.digests()) == 5


def test_the_last_good_one_is_there_after_a_restart(tmp_path: Path) -> None:
    """Where it is damaged, the good one before it; where there is none, nothing."""
    store = ReleaseStore(tmp_path / "store")
    assert last_good(store) is None
    one, other = (store.put(packed(tmp_path, depth=depth)[0]) for depth in (10, 20))
    store.put(packed(tmp_path, depth=30)[0])
    for stored in (other, one, other):
        store.good(stored.digest)
    assert last_good(ReleaseStore(tmp_path / "store")) == other
    other.path.write_bytes(b"")
    assert last_good(ReleaseStore(tmp_path / "store")) == one
    one.path.unlink()
    assert last_good(ReleaseStore(tmp_path / "store")) is None


@pytest.mark.parametrize("content", [b"", b"{}", b"[1, null]", b"[" * 5000, b"\xff" * 100_000])
def test_a_damaged_note_of_what_was_good_is_none(tmp_path: Path, content: bytes) -> None:
    """A start goes on as without it."""
    store = ReleaseStore(tmp_path / "store")
    stored = store.put(packed(tmp_path)[0])
    (store.folder / "good.json").write_bytes(content)
    assert last_good(store) is None
    store.good(stored.digest)
    assert last_good(store) == stored


def test_what_an_end_in_the_middle_left_is_cleared_away(tmp_path: Path) -> None:
    """A half-written file is never taken for a bundle, and does not stay."""
    store = ReleaseStore(tmp_path / "store")
    data, digest = packed(tmp_path)
    (store.folder / ".aside-x").write_bytes(data[:1000])
    (store.folder / "notes.tar").write_bytes(b"")
    again = ReleaseStore(tmp_path / "store")
    assert again.digests() == []
    assert again.path(digest) is None
    assert {path.name for path in store.folder.iterdir()} == {"notes.tar"}


def test_a_folder_that_cannot_be_used_is_told(tmp_path: Path) -> None:
    """At the start, and while it runs."""
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(ConfigError, match=r"file/store: cannot be used: (FileExistsError|NotADirectoryError)$"):
        ReleaseStore(tmp_path / "file" / "store")
    store = ReleaseStore(tmp_path / "store")
    store.folder.rmdir()
    with pytest.raises(ConfigError, match=r"\.tar: cannot be written: No such file or directory$"):
        store.put(packed(tmp_path)[0])


def test_with_keys_only_what_is_signed_is_kept_and_given_out(tmp_path: Path) -> None:
    """A bundle of the same digest that is not signed does not take its place; a key taken out counts no more."""
    keys = key_file(tmp_path, KEY)
    store = ReleaseStore(tmp_path / "store", keys_in(keys))
    signed, digest = packed(tmp_path, KEY)
    stored = store.put(signed)
    store.good(digest)
    for data in (packed(tmp_path)[0], packed(tmp_path, OTHER_KEY)[0]):
        with pytest.raises(ConfigError, match=r"it is (not signed|signed with the key)"):
            store.put(data)
    assert stored.path.read_bytes() == signed
    assert last_good(store) == stored
    key_file(tmp_path, OTHER_KEY)
    assert (store.path(digest), last_good(store)) == (None, None)
    assert store.put(packed(tmp_path, OTHER_KEY)[0]) == stored


def test_without_a_state_folder_nothing_stays(tmp_path: Path) -> None:
    """With one, it is in a folder of its own there."""
    data, digest = packed(tmp_path)
    with open_store(None, lambda: None) as store:
        assert store.put(data).path.is_file()
        folder = store.folder
    assert not folder.exists()
    with open_store(tmp_path / "state", lambda: None) as store:
        store.put(data)
    with open_store(tmp_path / "state", lambda: None) as store:
        assert store.digests() == [digest]
    assert [path.name for path in (tmp_path / "state").iterdir()] == ["releases"]


def test_what_is_no_digest_among_the_good_ones_is_passed_over(tmp_path: Path) -> None:
    """A file that somebody wrote into stops no start."""
    store = ReleaseStore(tmp_path / "store")
    stored = store.put(packed(tmp_path)[0])
    (store.folder / "good.json").write_bytes(orjson.dumps(["../x", 1, stored.digest]))
    assert last_good(store) == stored


@pytest.mark.skipif(os.geteuid() == 0, reason="root may change every file")
def test_a_store_that_may_only_be_read_gives_what_it_has(tmp_path: Path) -> None:
    """What is there already needs no writing; the oldest stay where they may not be taken away."""
    store = ReleaseStore(tmp_path / "store")
    old, data = packed(tmp_path, depth=10)[0], packed(tmp_path, depth=11)[0]
    stored = store.put(data)
    store.put(old)
    store.kept = 0
    store.folder.chmod(0o500)
    assert store.put(data) == stored
    store.folder.chmod(0o700)
    assert len(store.digests()) == 2
