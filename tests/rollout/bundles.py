"""Bundles of small releases, signed or not, and a source's looks without threads or waiting."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from cascade.rollout.bundle import build_bundle
from cascade.rollout.sources.looking import Looking
from cascade.rollout.store import ReleaseStore, Stored

from .arrange import write_release

__all__ = ["KEY", "OTHER_KEY", "key_file", "last_good", "looking", "packed", "public_pem"]

Result = TypeVar("Result")

KEY: Final = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
OTHER_KEY: Final = Ed25519PrivateKey.from_private_bytes(bytes(range(1, 33)))
_MADE: Final[dict[tuple[bytes | None, str], tuple[bytes, str]]] = {}
"""Bundles that were made before, by key and changes: the same input makes the same bytes."""


def last_good(store: ReleaseStore) -> Stored | None:
    """Return the last release that decided all traffic and that is still whole, None where there is none."""
    return next((found for digest in store.goods() if (found := store.stored(digest)) is not None), None)


def packed(folder: Path, key: Ed25519PrivateKey | None = None, **changes: Any) -> tuple[bytes, str]:
    """Return the tar of a sound release with its calibration and evidence, and the release's digest."""
    told = (None if key is None else key.private_bytes_raw(), repr(sorted(changes.items())))
    if told not in _MADE:
        place = folder / f"made-{len(_MADE)}"
        out = place / "bundle.tar"
        loaded = build_bundle(write_release(place, **changes).path, out, {}, key)
        _MADE[told] = out.read_bytes(), loaded.digest
    return _MADE[told]


def public_pem(*keys: Ed25519PrivateKey) -> bytes:
    """Return the public keys in PEM, one after another."""
    return b"".join(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo) for key in keys)


def key_file(folder: Path, *keys: Ed25519PrivateKey) -> Path:
    """Write a file of public keys."""
    path = folder / "release-keys.pem"
    path.write_bytes(public_pem(*keys))
    return path


def looking(**changes: Any) -> Looking:
    """Return looks 30 s apart that read on the loop itself, and whose stamps count 1, 2, 3 …."""
    stamps = itertools.count(1)
    settings: dict[str, Any] = {"draw": lambda: 0.5, "stamp": lambda: str(next(stamps)), "off_loop": _at_once}
    return Looking(**settings | changes)


async def _at_once(work: Callable[[], Result], /) -> Result:
    return work()
