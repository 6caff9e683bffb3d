"""Signatures of releases: what counts, and what is refused with its reason."""

from __future__ import annotations

import base64
import resource
import sys
from collections.abc import Callable
from pathlib import Path

import orjson
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from hypothesis import given
from hypothesis import strategies as st

from cascade.errors import ConfigError
from cascade.rollout.bundle import build_bundle, load_bundle, sign_bundle
from cascade.rollout.signing import (
    ReleaseKeys,
    check_signature,
    keys_in,
    make_keys,
    read_release_keys,
    read_signing_key,
    signature_bytes,
)
from cascade.rollout.tar import parse_tar, read_tar, tar_bytes

from .arrange import write_release
from .bundles import KEY, OTHER_KEY, key_file, packed, public_pem

_DIGEST = f"sha256:{'ab' * 32}"
_KEYS = ReleaseKeys({"56475aa75463474c": KEY.public_key()})
_PRIVATE = KEY.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def test_a_signature_is_of_one_release_and_one_key() -> None:
    """The same key and digest make the same bytes, which name the key."""
    made = signature_bytes(_DIGEST, KEY)
    assert check_signature(made, _DIGEST, _KEYS) == "56475aa75463474c"
    assert made == signature_bytes(_DIGEST, KEY)
    assert orjson.loads(made).keys() == {"key_id", "algorithm", "signature"}


def test_what_a_key_signed_elsewhere_is_no_signature_of_a_release() -> None:
    """The bare digest, signed for another purpose, does not count."""
    bare = base64.b64encode(KEY.sign(_DIGEST.encode())).decode()
    with pytest.raises(ConfigError, match="its signature is not of"):
        check_signature(orjson.dumps(orjson.loads(signature_bytes(_DIGEST, KEY)) | {"signature": bare}), _DIGEST, _KEYS)


@pytest.mark.parametrize(
    ("made", "told"),
    [
        (None, "it is not signed, and release keys are set: sign it with cascade release sign"),
        (signature_bytes(_DIGEST, OTHER_KEY), "which is none of the release keys (56475aa75463474c)"),
        (signature_bytes(f"sha256:{'cd' * 32}", KEY), f"its signature is not of {_DIGEST}: the release was altered, or"),
        (b"", "signature.json: file: Invalid JSON"),
        (b"[]", "signature.json: file: Input should be an object"),
        (b'{"key_id": "56475aa75463474c"}', "signature.json: algorithm: Field required"),
        (signature_bytes(_DIGEST, KEY).replace(b"ed25519", b"none"), "signature.json: algorithm: Input should be 'ed25519'"),
        (signature_bytes(_DIGEST, KEY).replace(b"56475", b"KINGF"), "signature.json: key_id: String should match pattern"),
        (signature_bytes(_DIGEST, KEY)[:-2] + b',"KINGF": 1}', "signature.json: a key that is none of a signature"),
        (signature_bytes(_DIGEST, KEY).replace(b'ature":"', b'ature":"!'), "signature.json: signature: not base64"),
        (signature_bytes(_DIGEST, KEY).replace(b'ature":"', b'ature":"\xc3\xa9'), "signature.json: signature: not base64"),
        (signature_bytes(_DIGEST, KEY).replace(b'ature":"', b'ature":"AAAA'), "its signature is not of"),
    ],
)  # fmt: skip
def test_what_does_not_count_is_refused_with_its_reason(made: bytes | None, told: str) -> None:
    """Nothing of what is there is repeated but a key's id."""
    with pytest.raises(ConfigError) as raised:
        check_signature(made, _DIGEST, _KEYS)
    assert told in str(raised.value)
    assert "KINGF" not in str(raised.value)


@given(st.data())
def test_an_altered_signature_never_counts(data: st.DataObject) -> None:
    """Any other byte anywhere is refused, or says the same."""
    whole = bytearray(signature_bytes(_DIGEST, KEY))
    position = data.draw(st.integers(0, len(whole) - 1))
    whole[position] ^= data.draw(st.integers(1, 255))
    try:
        check_signature(bytes(whole), _DIGEST, _KEYS)
    except ConfigError:
        return
    said, meant = (base64.b64decode(orjson.loads(each)["signature"]) for each in (whole, signature_bytes(_DIGEST, KEY)))
    assert said == meant


def test_keys_are_made_and_read_again(tmp_path: Path) -> None:
    """The private file is its owner's alone, and what it signs the public one knows."""
    private, public = tmp_path / "release.key", tmp_path / "release.pub"
    number = make_keys(private, public)
    assert private.stat().st_mode & 0o777 == 0o600
    assert [*read_release_keys(public).by_id] == [number]
    made = signature_bytes(_DIGEST, read_signing_key(private))
    assert check_signature(made, _DIGEST, read_release_keys(public)) == number


@pytest.mark.parametrize("name", ["release.key", "release.pub"])
def test_a_key_is_never_overwritten(tmp_path: Path, name: str) -> None:
    """Neither file is touched where one of them is there, and none is left alone."""
    (tmp_path / name).write_bytes(b"mine")
    with pytest.raises(ConfigError, match="it is there; a key is never overwritten"):
        make_keys(tmp_path / "release.key", tmp_path / "release.pub")
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [(name, b"mine")]


def test_keys_that_cannot_be_written_are_told(tmp_path: Path) -> None:
    """The error names the file."""
    with pytest.raises(ConfigError, match=r"release\.pub: cannot be written: FileNotFoundError$"):
        make_keys(tmp_path / "release.key", tmp_path / "none" / "release.pub")


def test_a_key_that_the_disk_took_in_part_is_not_left(tmp_path: Path) -> None:
    """It would be in the way of the next try, as no key is overwritten."""
    soft, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20, most))
    try:
        with pytest.raises(ConfigError, match=r"public: cannot be written: OSError$"):
            make_keys(tmp_path / "private", tmp_path / "public")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, most))
    assert list(tmp_path.iterdir()) == []
    make_keys(tmp_path / "private", tmp_path / "public")


def test_a_file_holds_several_public_keys_and_words(tmp_path: Path) -> None:
    """What stands between keys is for people."""
    path = tmp_path / "keys.pem"
    path.write_bytes(b"the build server:\n" + public_pem(KEY) + b"\nthe spare one\n" + public_pem(OTHER_KEY))
    keys = read_release_keys(path)
    assert len(keys.by_id) == 2
    assert check_signature(signature_bytes(_DIGEST, OTHER_KEY), _DIGEST, keys) in keys.by_id


def _spki(key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey) -> bytes:
    return key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "no public key in PEM in it"),
        (b"ssh-ed25519 AAAA", "no public key in PEM in it"),
        (_PRIVATE, "entry 1 is no public key; this file holds public keys alone"),
        (public_pem(KEY) + _PRIVATE, "entry 2 is no public key"),
        (_spki(ec.generate_private_key(ec.SECP256R1())), "entry 1 is not of Ed25519"),
        (b"-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n", "entry 1 cannot be read"),
        (b" " * 70_000, "larger than 65536 bytes"),
    ],
)
def test_a_file_of_other_things_is_no_file_of_keys(tmp_path: Path, content: bytes, told: str) -> None:
    """Any entry that is no public key of Ed25519 makes the whole file unusable."""
    path = tmp_path / "keys.pem"
    path.write_bytes(content)
    with pytest.raises(ConfigError) as raised:
        read_release_keys(path)
    assert str(raised.value).startswith("release keys ")
    assert told in str(raised.value)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "no private key in PEM in it"),
        (public_pem(KEY), "no private key in PEM in it"),
        (KEY.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"x")), "it is encrypted"),
        (
            ec.generate_private_key(ec.SECP256R1()).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
            "it is not of Ed25519",
        ),
    ],
)
def test_what_cannot_sign_is_told(tmp_path: Path, content: bytes, told: str) -> None:
    """The error names the file and the rule."""
    path = tmp_path / "release.key"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=rf"signing key .*release\.key: {told}"):
        read_signing_key(path)


def test_keys_are_read_at_each_use(tmp_path: Path) -> None:
    """A key that was taken out of the file counts no more; without a file nothing is asked for."""
    path = key_file(tmp_path, KEY, OTHER_KEY)
    keys = keys_in(path)
    assert len(_some(keys()).by_id) == 2
    key_file(tmp_path, OTHER_KEY)
    assert len(_some(keys()).by_id) == 1
    assert keys_in(None)() is None


def _some(keys: ReleaseKeys | None) -> ReleaseKeys:
    assert keys is not None
    return keys


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without cryptography the error says which extra to install."""
    monkeypatch.setitem(sys.modules, "cryptography", None)  # what makes an import fail
    for need in (
        lambda: read_release_keys(tmp_path),
        lambda: read_signing_key(tmp_path),
        lambda: make_keys(tmp_path, tmp_path),
    ):
        with pytest.raises(ConfigError, match=r"install cascade-rerank\[sign\]"):
            need()


@pytest.mark.parametrize("name", ["bundle", "bundle.tar"])
def test_a_bundle_is_signed_and_loaded_with_its_key(tmp_path: Path, name: str) -> None:
    """At building or afterwards, the bytes are the same; without keys nobody asks."""
    written = write_release(tmp_path)
    loaded = build_bundle(written.path, tmp_path / "unsigned.tar", {})
    build_bundle(written.path, tmp_path / "at-once.tar", {}, KEY)
    sign_bundle(tmp_path / "unsigned.tar", tmp_path / "signed.tar", {}, KEY)
    sign_bundle(tmp_path / "at-once.tar", tmp_path / name, {}, KEY)
    assert (tmp_path / "at-once.tar").read_bytes() == (tmp_path / "signed.tar").read_bytes()
    bundle = load_bundle(tmp_path / name, {}, _KEYS)
    assert (bundle.loaded.digest, bundle.signed_by) == (loaded.digest, "56475aa75463474c")
    assert bundle.source.strays == ()
    assert load_bundle(tmp_path / name, {}).signed_by is None


def test_another_key_signs_in_place_of_the_first(tmp_path: Path) -> None:
    """A bundle has one signature, and the one that was signed is not changed."""
    one, other = tmp_path / "one.tar", tmp_path / "other.tar"
    build_bundle(write_release(tmp_path).path, one, {}, OTHER_KEY)
    before = one.read_bytes()
    sign_bundle(one, other, {}, KEY)
    assert load_bundle(other, {}, _KEYS).signed_by == "56475aa75463474c"
    assert one.read_bytes() == before
    with pytest.raises(ConfigError, match="a bundle is never changed"):
        sign_bundle(other, one, {}, KEY)


def test_a_yaml_file_is_not_signed_by_nature(tmp_path: Path) -> None:
    """The error says how to build and to sign."""
    path = write_release(tmp_path).path
    with pytest.raises(ConfigError, match=r"cannot be signed.* cascade release build, and .* cascade release sign"):
        load_bundle(path, {}, _KEYS)
    with pytest.raises(ConfigError, match="a YAML file is no bundle; make one with cascade release build"):
        sign_bundle(path, tmp_path / "signed.tar", {}, KEY)


def _without(name: str) -> Callable[[dict[str, bytes]], dict[str, bytes]]:
    return lambda files: {each: data for each, data in files.items() if name not in each}


def _altered(files: dict[str, bytes]) -> dict[str, bytes]:
    return {
        name: data.replace(b"1", b"2", 1) if name.startswith("artifacts/") else data for name, data in files.items()
    }


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (_without("signature"), "it is not signed"),
        (_without("artifacts/"), "no file has this digest in the bundle"),
        (_altered, "it was altered: its bytes have the digest"),
        (
            lambda files: files | {"release.yaml": files["release.yaml"].replace(b"depth: 50", b"depth: 51")},
            "its signature is not of sha256:",
        ),
    ],
)
def test_a_signed_bundle_is_whole_or_refused(
    tmp_path: Path, change: Callable[[dict[str, bytes]], dict[str, bytes]], told: str
) -> None:
    """What without keys would serve in the safe mode is refused with them."""
    data, _ = packed(tmp_path, KEY)
    path = tmp_path / "altered.tar"
    path.write_bytes(tar_bytes(change(parse_tar(data))))
    with pytest.raises(ConfigError) as raised:
        load_bundle(path, {}, _KEYS)
    assert str(raised.value).startswith(f"release {path}: ")
    assert told in str(raised.value)
    assert read_tar(path) == change(parse_tar(data))
