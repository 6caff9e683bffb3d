"""Sign releases with Ed25519, and hold a bundle against the keys that may sign."""

from __future__ import annotations

import base64
import hashlib
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from cascade.errors import ConfigError, lacks_extra
from cascade.rollout.artefacts import read_bounded
from cascade.rollout.names import SIGNATURE_NAME

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

__all__ = [
    "ReleaseKeys",
    "check_signature",
    "keys_in",
    "make_keys",
    "read_release_keys",
    "read_signing_key",
    "signature_bytes",
]

_DOMAIN: Final = b"cascade release signature, version 1\n"
"""What is signed begins with it, so that a signature that the same key made of something else is none of a release."""
_LARGEST_KEYS: Final = 65_536
_PEM: Final = re.compile(rb"-----BEGIN ([A-Z0-9 ]+)-----.*?-----END \1-----", re.DOTALL)
_PUBLIC: Final = b"PUBLIC KEY"


class _Signature(BaseModel):
    """``signature.json`` of a bundle."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, hide_input_in_errors=True)

    key_id: str = Field(pattern=r"^[0-9a-f]{16}$")
    algorithm: Literal["ed25519"]
    signature: str = Field(max_length=100)


@dataclass(frozen=True, slots=True)
class ReleaseKeys:
    """The public keys whose signature of a release counts, by id."""

    by_id: Mapping[str, Ed25519PublicKey]


def read_release_keys(path: Path) -> ReleaseKeys:
    """Read public keys in PEM, one at least. Raises ConfigError for anything else in the file, a private key above all."""
    _need_cryptography()
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    found: dict[str, Ed25519PublicKey] = {}
    for number, block in enumerate(_PEM.finditer(_read(path, "release keys")), 1):
        if block[1] != _PUBLIC:
            raise ConfigError(
                f"release keys {path}: entry {number} is no public key; this file holds public keys alone"
            )
        try:
            key = load_pem_public_key(block[0])
        except (ValueError, UnsupportedAlgorithm):
            raise ConfigError(f"release keys {path}: entry {number} cannot be read") from None
        if not isinstance(key, Ed25519PublicKey):
            raise ConfigError(f"release keys {path}: entry {number} is not of Ed25519")
        found[_id_of(key)] = key
    if not found:
        raise ConfigError(f"release keys {path}: no public key in PEM in it")
    return ReleaseKeys(found)


def keys_in(path: Path | None) -> Callable[[], ReleaseKeys | None]:
    """Return what reads a file of keys whenever it is asked, so that a key taken out counts no more at once.

    Without a file signatures are not asked for: None.
    """
    return lambda: None if path is None else read_release_keys(path)


def read_signing_key(path: Path) -> Ed25519PrivateKey:
    """Read a private key in PEM, unencrypted. Raises ConfigError."""
    _need_cryptography()
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    data = _read(path, "signing key")
    try:
        key = load_pem_private_key(data, None)
    except TypeError:
        raise ConfigError(f"signing key {path}: it is encrypted; give it as plain PEM") from None
    except (ValueError, UnsupportedAlgorithm):
        raise ConfigError(f"signing key {path}: no private key in PEM in it") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise ConfigError(f"signing key {path}: it is not of Ed25519")
    return key


def make_keys(private: Path, public: Path) -> str:
    """Write a new pair of keys and return its id; the private one can be read by its owner alone.

    Raises ConfigError where either file is there or cannot be written.
    """
    _need_cryptography()
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

    key = Ed25519PrivateKey.generate()
    spki = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    _write_new(public, spki, 0o644)
    try:
        _write_new(private, key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()), 0o600)
    except ConfigError:
        public.unlink()  # alone it opens nothing and would be in the way of the next try
        raise
    return _id_of(key.public_key())


def signature_bytes(digest: str, key: Ed25519PrivateKey) -> bytes:
    """Return ``signature.json`` of the release of this digest."""
    signed = base64.b64encode(key.sign(_DOMAIN + digest.encode())).decode()
    told = {"key_id": _id_of(key.public_key()), "algorithm": "ed25519", "signature": signed}
    return orjson.dumps(told, option=orjson.OPT_APPEND_NEWLINE)


def check_signature(signature: bytes | None, digest: str, keys: ReleaseKeys) -> str:
    """Return the id of the key that signed the release of this digest. Raises ConfigError where none of ``keys`` did."""
    from cryptography.exceptions import InvalidSignature

    if signature is None:
        raise ConfigError("it is not signed, and release keys are set: sign it with cascade release sign")
    try:
        told = _Signature.model_validate_json(signature)
        raw = base64.b64decode(told.signature, validate=True)
    except ValidationError as error:
        fault = error.errors(include_url=False, include_input=False, include_context=False)[0]
        place = ".".join(map(str, fault["loc"])) or "file"
        why = "a key that is none of a signature" if fault["type"] == "extra_forbidden" else f"{place}: {fault['msg']}"
        raise ConfigError(f"{SIGNATURE_NAME}: {why}") from None
    except ValueError:  # binascii.Error is one, and what is not ASCII raises none of its kind
        raise ConfigError(f"{SIGNATURE_NAME}: signature: not base64") from None
    key = keys.by_id.get(told.key_id)
    if key is None:
        known = ", ".join(sorted(keys.by_id))
        raise ConfigError(f"it is signed with the key {told.key_id}, which is none of the release keys ({known})")
    try:
        key.verify(raw, _DOMAIN + digest.encode())
    except InvalidSignature:
        raise ConfigError(
            f"its signature is not of {digest}: the release was altered, or the signature is another's"
        ) from None
    return told.key_id


def _id_of(key: Ed25519PublicKey) -> str:
    """Return 16 digits of the SHA-256 of a key's 32 bytes: a name to find it by, which proves nothing."""
    return hashlib.sha256(key.public_bytes_raw()).hexdigest()[:16]


def _read(path: Path, what: str) -> bytes:
    try:
        return read_bounded(path, _LARGEST_KEYS)
    except ConfigError as error:
        raise ConfigError(f"{what} {error}") from None


def _write_new(path: Path, data: bytes, mode: int) -> None:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
        except OSError:
            path.unlink()  # a part of a key opens nothing and would be in the way of the next try
            raise
    except FileExistsError:
        raise ConfigError(f"{path}: it is there; a key is never overwritten") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {type(error).__name__}") from None


def _need_cryptography() -> None:
    try:
        import cryptography  # noqa: F401
    except ImportError:
        raise lacks_extra("signatures need cryptography; install", "sign") from None
