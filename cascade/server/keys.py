"""API keys: what a caller shows, and what it may do then. No key is held, only hashes of them."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

__all__ = ["Key", "KeyRing", "Right", "hash_of", "presented_key"]


class Right(StrEnum):
    """What a key allows. The list is closed."""

    RERANK = "rerank"
    READ = "read"
    OPERATE = "operate"
    ANY_TENANT = "any-tenant"


@dataclass(frozen=True, slots=True)
class Key:
    """Whose key it is. ``priority`` is the first class that it allows; ``expires`` is in seconds since 1970."""

    name: str
    tenant: str | None
    priority: int
    expires: float | None
    rights: frozenset[Right]


class KeyRing:
    """Find a key by what was presented, in time that does not tell which one, or how much of one, it is like.

    Keys have 256 random bits or the like, so one SHA-256 of them is enough: there is nothing to guess.
    """

    def __init__(self, keys: Sequence[tuple[bytes, Key]]) -> None:
        self._keys = tuple(keys)

    def __len__(self) -> int:
        return len(self._keys)

    def find(self, presented: str) -> Key | None:
        """Return the key, None where there is none like it. Every entry is compared."""
        digest = hash_of(presented)
        found = None
        for known, key in self._keys:
            if hmac.compare_digest(known, digest):
                found = key
        return found

    def live(self, now: float) -> int:
        """Return how many keys have not expired."""
        return sum(key.expires is None or now < key.expires for _, key in self._keys)


def hash_of(presented: str) -> bytes:
    """Return the hash that a key is known by."""
    return hashlib.sha256(presented.encode("utf-8", "surrogateescape")).digest()


def presented_key(headers: Mapping[str, str]) -> str | None:
    """Return the key in a request's headers, None where there is none.

    ``Authorization: Bearer <key>``, in any case of the scheme; ``Authorization: <key>``, as LlamaIndex's client of
    TEI sends it; ``X-Api-Key: <key>``. An empty value, as Dify sends it, is none.
    """
    given = headers.get("authorization", "").strip()
    scheme, _, rest = given.partition(" ")
    if scheme.lower() == "bearer":
        given = rest.strip()
    return given or headers.get("x-api-key", "").strip() or None
