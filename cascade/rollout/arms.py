"""Which arm of a rollout answers whom: by a keyed hash, so that replicas and restarts decide alike."""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b
from typing import Final

__all__ = ["UNIT_NUMBERS", "place", "unit_number"]

_BITS: Final = 53
"""As many as a double holds exactly: more would round the last places up to 1."""
UNIT_NUMBERS: Final = 2**32
"""As many numbers of units there are, from 0."""


def place(unit: str, salt: str) -> float:
    """Return where a unit of traffic stands in [0, 1): always the same for one salt, unrelated for another.

    The canary answers those below its share, so that a larger share only adds members.

    It is the first 53 bits of BLAKE2b-64 of the unit in UTF-8, keyed by BLAKE2b-256 of the salt, over 2^53.
    """
    hashed = blake2b(unit.encode("utf-8", "replace"), key=_key(salt), digest_size=8).digest()
    return (int.from_bytes(hashed) >> (64 - _BITS)) / 2.0**_BITS


def unit_number(at: float) -> int:
    """Return a number of the unit at a place: its last 32 bits, which say nothing of the arm."""
    return int(at * 2.0**_BITS) % UNIT_NUMBERS


@lru_cache(maxsize=8)
def _key(salt: str) -> bytes:
    return blake2b(salt.encode("utf-8", "replace"), digest_size=32).digest()
