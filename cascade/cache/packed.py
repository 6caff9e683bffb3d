"""A score as it is kept outside the process: so many bytes, and a proof that they were written with the secret."""

from __future__ import annotations

import math
import struct
from hashlib import blake2b
from hmac import compare_digest
from typing import Final

__all__ = ["Packer"]

_VERSION: Final = b"\1"
_MAC_BYTES: Final = 8
_PERSON: Final = b"cascade-score"
_SCORE: Final = struct.Struct("<d")
_BYTES: Final = len(_VERSION) + _SCORE.size + _MAC_BYTES


class Packer:
    """Write and read scores. One that was altered, or put under another key, reads as none.

    Each way takes about a microsecond.
    """

    def __init__(self, secret: bytes) -> None:
        self._start = blake2b(digest_size=_MAC_BYTES, key=secret, person=_PERSON)

    def pack(self, key: bytes, score: float) -> bytes:
        """Return a version, the score, and a MAC of both and their key."""
        told = _VERSION + _SCORE.pack(score)
        return told + self._mac(key, told)

    def unpack(self, key: bytes, packed: bytes) -> float | None:
        """Return the score that was kept under a key, None where this is none."""
        if len(packed) != _BYTES or packed[:1] != _VERSION:
            return None
        told = packed[:-_MAC_BYTES]
        if not compare_digest(packed[-_MAC_BYTES:], self._mac(key, told)):
            return None
        score: float = _SCORE.unpack(told[1:])[0]
        return score if math.isfinite(score) else None

    def _mac(self, key: bytes, told: bytes) -> bytes:
        state = self._start.copy()
        state.update(key + told)
        return state.digest()
