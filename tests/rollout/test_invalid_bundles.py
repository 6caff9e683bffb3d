"""Everything that a bundle must not be, at each door: read, checked, loaded, stored. The last good stands."""

from __future__ import annotations

import hashlib
import io
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from cascade.errors import ConfigError
from cascade.rollout.bundle import load_bundle
from cascade.rollout.load import release_from
from cascade.rollout.signing import ReleaseKeys, keys_in, read_release_keys, signature_bytes
from cascade.rollout.source import opened_tar
from cascade.rollout.store import ReleaseStore
from cascade.rollout.tar import LARGEST_TAR, parse_tar, tar_bytes
from cascade.rollout.verify import verify

from .bundles import KEY, OTHER_KEY, key_file, last_good, packed

Files = dict[str, bytes]

_MINE: Final = f"artifacts/{'ab' * 32}.json"


def _with(*members: tuple[tarfile.TarInfo, bytes]) -> Callable[[Files], bytes]:
    """Return what writes the files, and then members that another program put there."""

    def write(files: Files) -> bytes:
        written = io.BytesIO(tar_bytes(files))
        with tarfile.open(fileobj=written, mode="a") as tar:
            for member, data in members:
                tar.addfile(member, io.BytesIO(data))
        return written.getvalue()

    return write


def _member(
    name: str, kind: bytes = tarfile.REGTYPE, data: bytes = b"", link: str = ""
) -> tuple[tarfile.TarInfo, bytes]:
    member = tarfile.TarInfo(name)
    member.type, member.linkname, member.size = kind, link, len(data)
    return member, data


def _huge(files: Files) -> bytes:
    """Say of an artefact that it has 40 MB, and have them, all nought."""
    member = tarfile.TarInfo(_MINE)
    member.size = 40 * 10**6
    return _without_end(files) + member.tobuf(tarfile.USTAR_FORMAT) + bytes(member.size)


def _bomb(files: Files) -> bytes:
    """Claim 8 GB for an artefact, in 512 bytes."""
    member = tarfile.TarInfo(_MINE)
    member.size = 8 * 2**30 - 1
    return _without_end(files) + member.tobuf()


def _without_end(files: Files) -> bytes:
    """Return a tar without the empty blocks that end it, so that more members can follow."""
    data = tar_bytes(files).rstrip(b"\0")
    return data + bytes(-len(data) % 512)


def _changed(name: str, change: Callable[[bytes], bytes]) -> Callable[[Files], bytes]:
    return lambda files: tar_bytes({each: change(data) if name in each else data for each, data in files.items()})


def _lacking(name: str) -> Callable[[Files], bytes]:
    return lambda files: tar_bytes({each: data for each, data in files.items() if name not in each})


def _not_json(files: Files) -> bytes:
    """Name an artefact as evidence whose bytes have the digest and are no JSON."""
    data = b"kingfisher"
    digest = hashlib.sha256(data).hexdigest()
    release = files["release.yaml"].replace(b"report: sha256:", b"report: sha256:" + digest.encode() + b" #")
    written = files | {"release.yaml": release, f"artifacts/{digest}.json": data}
    loaded = release_from(opened_tar(Path("x"), tar_bytes(written)), {})
    return tar_bytes(written | {"signature.json": signature_bytes(loaded.digest, KEY)})


_INVALID: Final[dict[str, tuple[Callable[[Files], bytes], str]]] = {
    "nothing": (lambda files: b"", "not a tar, or damaged"),
    "a truncated tar": (lambda files: tar_bytes(files)[:3000], "not a tar, or damaged"),
    "a truncated header": (lambda files: tar_bytes(files)[:700], "not a tar, or damaged"),
    "too many bytes": (lambda files: bytes(LARGEST_TAR + 1), f"larger than {LARGEST_TAR} bytes"),
    "a huge member": (_huge, "larger than 33554432 bytes"),
    "a member that claims to be huge": (_bomb, "larger than 33554432 bytes"),
    "a path that leads outside": (_with(_member("../release.yaml", data=b"x")), "its name is none that a bundle has"),
    "an absolute path": (_with(_member("/etc/passwd", data=b"x")), "its name is none that a bundle has"),
    "a symbolic link": (_with(_member(_MINE, tarfile.SYMTYPE, link="/etc/passwd")), "not a plain file"),
    "a hard link": (_with(_member(_MINE, tarfile.LNKTYPE, link="release.yaml")), "not a plain file"),
    "a device": (_with(_member(_MINE, tarfile.CHRTYPE)), "not a plain file"),
    "a pipe": (_with(_member(_MINE, tarfile.FIFOTYPE)), "not a plain file"),
    "a file that is there twice": (_with(_member("release.yaml", data=b"release: r2")), "release.yaml: there twice"),
    "a signature that is there twice": (_with(_member("signature.json", data=b"{}")), "signature.json: there twice"),
    "a file that no bundle has": (_with(_member("run.sh", data=b"x")), "its name is none that a bundle has"),
    "many members": (_with(*(_member(f"artifacts/{n:064x}.json") for n in range(70))), "more than 64 entries"),
    "no release": (_lacking("release.yaml"), "no release.yaml in it"),
    "an unknown field": (_changed("release.yaml", lambda data: data + b"depht: 3\n"), "depht: Extra inputs are not permitted"),
    "a value out of range": (
        _changed("release.yaml", lambda data: data.replace(b"depth: 50", b"depth: -1")), "depth"
    ),
    "an altered release": (
        _changed("release.yaml", lambda data: data.replace(b"depth: 50", b"depth: 51")), "its signature is not of sha256:"
    ),
    "an altered artefact": (_changed("artifacts/", lambda data: data + b" "), "it was altered: its bytes have the digest"),
    "a missing artefact": (_lacking("artifacts/"), "no file has this digest in the bundle"),
    "an artefact that is no JSON": (_not_json, "not JSON"),
    "no signature": (_lacking("signature"), "it is not signed"),
    "another key's signature": (
        lambda files: tar_bytes(files | {"signature.json": signature_bytes(f"sha256:{'cd' * 32}", OTHER_KEY)}),
        "which is none of the release keys",
    ),
    "another release's signature": (
        lambda files: tar_bytes(files | {"signature.json": signature_bytes(f"sha256:{'cd' * 32}", KEY)}),
        "the signature is another's",
    ),
    "a signature that is none": (_changed("signature", lambda data: b"{}"), "signature.json: key_id: Field required"),
}  # fmt: skip


@pytest.fixture
def sound(tmp_path: Path) -> tuple[bytes, str, ReleaseKeys]:
    """Give a signed bundle, its digest and the keys that count."""
    data, digest = packed(tmp_path, KEY)
    return data, digest, read_release_keys(key_file(tmp_path, KEY))


@pytest.mark.parametrize("name", _INVALID)
def test_an_invalid_bundle_is_refused_at_each_door_with_its_reason(
    tmp_path: Path, sound: tuple[bytes, str, ReleaseKeys], name: str
) -> None:
    """Loading refuses, checking refuses or finds an error, and the store keeps what it had."""
    make, told = _INVALID[name]
    data, digest, keys = sound
    path = tmp_path / "invalid.tar"
    path.write_bytes(make(parse_tar(data)))
    with pytest.raises(ConfigError) as raised:
        load_bundle(path, {}, keys)
    assert told in str(raised.value)
    assert "kingfisher" not in str(raised.value)
    assert any(told in sentence for sentence in _against(path, keys))
    store = ReleaseStore(tmp_path / "store", keys_in(tmp_path / "release-keys.pem"))
    store.good(store.put(data).digest)
    for bundle in (path, path.read_bytes()):
        with pytest.raises(ConfigError) as raised:
            store.put(bundle)
        assert told in str(raised.value)
    last = last_good(store)
    assert last is not None
    assert (last.digest, last.path.read_bytes()) == (digest, data)
    assert store.digests() == [digest]


def _against(path: Path, keys: ReleaseKeys) -> list[str]:
    """Return what verify says against a bundle: its findings, or why there are none."""
    try:
        done = verify(path, {}, keys=keys)
    except ConfigError as error:
        return [str(error)]
    assert not done.passes(strict=False)
    return [finding.what for finding in done.findings]


def test_another_digest_than_the_one_asked_for_is_an_error(
    tmp_path: Path, sound: tuple[bytes, str, ReleaseKeys]
) -> None:
    """A sound release that is not the wanted one does not pass."""
    data, digest, keys = sound
    path = tmp_path / "sound.tar"
    path.write_bytes(data)
    assert verify(path, {}, digest, keys, load=True).findings == ()
    done = verify(path, {}, f"sha256:{'ab' * 32}", keys)
    assert [finding.what for finding in done.findings] == [f"its digest is {digest}, not the one asked for"]
    assert not done.passes(strict=False)
