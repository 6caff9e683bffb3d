"""Which bundle a digest or a name means."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cascade.errors import ConfigError
from cascade.rollout import finding
from cascade.rollout.activation import ActivationStep, Refused
from cascade.rollout.bundle import build_bundle
from cascade.rollout.finding import find_release
from cascade.rollout.signing import keys_in
from cascade.rollout.store import ReleaseStore

from .arrange import write_release
from .bundles import KEY, key_file, packed


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Give a folder of releases: two of one name, one of another, and things that are none."""
    folder = tmp_path / "releases"
    folder.mkdir()
    (folder / "one.tar").write_bytes(packed(tmp_path, release="r1")[0])
    (folder / "again.tar").write_bytes((folder / "one.tar").read_bytes())
    (folder / "two.tar").write_bytes(packed(tmp_path, release="r2", depth=20)[0])
    build_bundle(write_release(tmp_path / "x", release="r2", depth=30).path, folder / "three", {})
    (folder / "broken.tar").write_bytes(b"x")
    (folder / "notes.txt").write_bytes(b"x")
    return folder


def test_a_name_that_one_release_has_is_found(tmp_path: Path, folder: Path) -> None:
    """Two copies of one release are one; it is kept from then on."""
    store = ReleaseStore(tmp_path / "store")
    found = find_release("r1", store, folder)
    assert (found.name, store.digests()) == ("r1", [found.digest])
    assert find_release(found.digest, store, None) == found


@pytest.mark.parametrize("depth", [20, 30])
def test_a_digest_is_found_in_the_folder(tmp_path: Path, folder: Path, depth: int) -> None:
    """As a tar and as a folder."""
    _, digest = packed(tmp_path, release="r2", depth=depth)
    assert find_release(digest, ReleaseStore(tmp_path / "store"), folder).digest == digest


def test_a_name_that_several_releases_have_is_refused(tmp_path: Path, folder: Path) -> None:
    """The error names their digests."""
    digests = sorted(packed(tmp_path, release="r2", depth=depth)[1] for depth in (20, 30))
    with pytest.raises(ConfigError, match=f"several releases have this name.*: {', '.join(digests)}$"):
        find_release("r2", ReleaseStore(tmp_path / "store"), folder)


def test_what_is_nowhere_is_told(tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it was looked, and what is there by which name; a path is not followed."""
    store = ReleaseStore(tmp_path / "store")
    (folder / "broken.tar").unlink()
    told = rf"^no release of this name in {folder}: there are, by the name inside the file: r1, r2$"
    for wanted in ("../releases/one.tar", "one", "one.tar"):
        with pytest.raises(ConfigError, match=told):
            find_release(wanted, store, folder)
    with pytest.raises(ConfigError, match=r"^no release of this digest: releases_folder is not set$"):
        find_release(f"sha256:{'ab' * 32}", store, None)
    with pytest.raises(ConfigError, match=r"cannot be read: FileNotFoundError$"):
        find_release("r1", store, tmp_path / "none")
    monkeypatch.setattr(finding, "_MOST", 2)
    with pytest.raises(ConfigError, match=r"more than 2 entries$"):
        find_release("r1", store, folder)


def test_what_cannot_be_read_is_told_by_file_and_kind(tmp_path: Path, folder: Path) -> None:
    """It may be the one that is meant. What somebody wrote in it is not repeated."""
    (folder / "cut.tar").write_bytes((folder / "one.tar").read_bytes()[:700])
    (folder / "canary").mkdir()
    (folder / "canary" / "release.yaml").write_bytes(b"release: r9\nkingfisher: 1\n")
    with pytest.raises(Refused) as refused:
        find_release("r9", ReleaseStore(tmp_path / "store"), folder)
    assert refused.value.step is ActivationStep.READ
    assert refused.value.why == (
        f"no release of this name in {folder}: there are, by the name inside the file: r1, r2",
        "cannot be read: broken.tar: not a tar, or damaged; it must not be compressed",
        "cannot be read: canary: its release breaks a rule: `cascade release verify` tells which",
        "cannot be read: cut.tar: not a tar, or damaged; it must not be compressed",
    )


def test_of_many_that_cannot_be_read_some_are_told(tmp_path: Path) -> None:
    """And how many there are besides."""
    for number in range(25):
        (tmp_path / f"{number:02}.tar").write_bytes(b"x")
    with pytest.raises(Refused) as refused:
        find_release("r9", ReleaseStore(tmp_path / "store"), tmp_path)
    first, *others = refused.value.why
    assert first.endswith(": none")
    assert (len(others), others[-1]) == (21, "and 5 more")


def test_a_release_that_cannot_be_kept_is_refused_and_says_why(tmp_path: Path, folder: Path) -> None:
    """A disk that is full, say: the place is a folder here."""
    store = ReleaseStore(tmp_path / "store")
    _, digest = packed(tmp_path, release="r1")
    (tmp_path / "store" / f"{digest.removeprefix('sha256:')}.tar").mkdir()
    with pytest.raises(Refused, match=r"^refused at read: .*cannot be written: Is a directory$"):
        find_release("r1", store, folder)


def test_with_keys_what_is_found_must_be_signed(tmp_path: Path, folder: Path) -> None:
    """It is refused when it is to be kept; a signed copy beside unsigned ones is the one that is meant."""
    store = ReleaseStore(tmp_path / "store", keys_in(key_file(tmp_path, KEY)))
    with pytest.raises(Refused, match=r"refused at signature: .*it is not signed"):
        find_release("r1", store, folder)
    data, digest = packed(tmp_path, KEY, release="r1")
    (folder / "b-signed.tar").write_bytes(data)
    assert find_release("r1", store, folder).digest == digest


@pytest.mark.skipif(os.geteuid() == 0, reason="root may look into every folder")
def test_a_folder_that_may_not_be_looked_into_is_one_that_cannot_be_read(tmp_path: Path, folder: Path) -> None:
    """It hides no other, and is counted."""
    (folder / "three").chmod(0)
    store = ReleaseStore(tmp_path / "store")
    assert find_release("r1", store, folder).name == "r1"
    with pytest.raises(Refused, match=r"three/release\.yaml: cannot be read: PermissionError"):
        find_release("r9", store, folder)
    (folder / "three").chmod(0o755)


@pytest.mark.parametrize("name", ["a.tar", "bundle/signature.json"])
def test_a_pipe_in_the_folder_is_one_that_cannot_be_read(tmp_path: Path, folder: Path, name: str) -> None:
    """Nobody waits for somebody to write to it."""
    if "/" in name:
        build_bundle(write_release(tmp_path / "y", release="r3").path, folder / "bundle", {})
    os.mkfifo(folder / name)
    store = ReleaseStore(tmp_path / "store")
    assert find_release("r1", store, folder).name == "r1"
    with pytest.raises(Refused, match=f"{name}: not a regular file"):
        find_release("r9", store, folder)
    with pytest.raises(ConfigError, match="not a regular file"):
        store.put((folder / name).parent if "/" in name else folder / name)


def test_what_is_only_looked_at_is_not_kept(tmp_path: Path, folder: Path) -> None:
    """It lies where it lay; what the store would not take is refused all the same."""
    store = ReleaseStore(tmp_path / "store", keys_in(key_file(tmp_path, KEY)))
    with pytest.raises(Refused, match=r"refused at signature: .*it is not signed"):
        find_release("r1", store, folder, keep=False)
    data, digest = packed(tmp_path, KEY, release="r1")
    (folder / "b-signed.tar").write_bytes(data)
    found = find_release("r1", store, folder, keep=False)
    assert (found.digest, found.path, store.digests()) == (digest, folder / "b-signed.tar", [])
