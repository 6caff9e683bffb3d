"""Decode an answer piece by piece: a few bytes may stand for a thousand times as many."""

from __future__ import annotations

import zlib
from collections.abc import AsyncIterable, AsyncIterator
from typing import Any, Final

__all__ = ["BadEncoding", "decoded"]

_PIECE_BYTES: Final = 65_536
_GZIP: Final = 31
_ZLIB: Final = 15
_RAW: Final = -15


class BadEncoding(Exception):
    """An answer is not what its encoding says, or in one that was not asked for."""

    def __init__(self) -> None:
        super().__init__("not what its encoding says, or one that was not asked for")


async def decoded(stream: AsyncIterable[bytes], encoding: str) -> AsyncIterator[bytes]:
    """Give the pieces of a body, of 64 KiB at most where it was compressed. Raises BadEncoding."""
    encoding = encoding.strip().lower()
    if encoding in {"", "identity"}:
        async for part in stream:
            yield part
        return
    if encoding not in {"gzip", "x-gzip", "deflate"}:
        raise BadEncoding
    decoder: Any = None
    async for part in stream:
        if decoder is None and part:
            decoder = zlib.decompressobj(_window(encoding, part))
        while part and not decoder.eof:  # what comes behind its end is read and dropped
            try:
                yield decoder.decompress(part, _PIECE_BYTES)
            except zlib.error:
                raise BadEncoding from None
            part = decoder.unconsumed_tail  # noqa: PLW2901 - what is left of it
    if decoder is not None:
        yield decoder.flush(_PIECE_BYTES)


def _window(encoding: str, begun: bytes) -> int:
    """Return what zlib is to expect: some servers send deflate without the head that belongs to it."""
    if encoding != "deflate":
        return _GZIP
    return _ZLIB if begun[0] & 0x0F == 8 else _RAW
