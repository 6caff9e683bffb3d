"""Keep the token ids of documents that come again."""

from __future__ import annotations

import threading
from collections import OrderedDict
from hashlib import blake2b
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["Side", "TokenCache"]

_ENTRY_BYTES: Final = 400
"""What an entry takes beside its ids: the key, the headers of array and tuple, and its place in the dictionary."""


class Side(NamedTuple):
    """The first ids of a document, as many as are ever read, and how many there are in all."""

    ids: npt.NDArray[np.int32]
    length: int

    def __repr__(self) -> str:  # ids are text, to who has the tokenizer
        return f"Side(<{self.length} ids>)"


class TokenCache:
    """Keep the ids of the documents used last within so many bytes, by a digest of their text; the text is not kept.

    Safe to call from several threads at once.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._sides: OrderedDict[bytes, Side] = OrderedDict()
        self._lock = threading.Lock()
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._sides)

    @staticmethod
    def key(text: str) -> bytes:
        """Return the digest that a text is kept under."""
        return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()

    def get(self, key: bytes) -> Side | None:
        """Return a document and mark it as used, None where it is not kept."""
        with self._lock:
            side = self._sides.get(key)
            if side is not None:
                self._sides.move_to_end(key)
            return side

    def put(self, key: bytes, side: Side) -> None:
        """Keep a document, in place of those used longest ago where there is no room. What has no room is not kept."""
        size = _bytes_of(side)
        if size > self._most_bytes:
            return
        with self._lock:
            before = self._sides.pop(key, None)
            self.bytes += size - (0 if before is None else _bytes_of(before))
            self._sides[key] = side
            while self.bytes > self._most_bytes:
                _, oldest = self._sides.popitem(last=False)
                self.bytes -= _bytes_of(oldest)


def _bytes_of(side: Side) -> int:
    return side.ids.nbytes + _ENTRY_BYTES
