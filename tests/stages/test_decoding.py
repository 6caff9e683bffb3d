"""Compressed answers: whole ones are read, what is none is told, and a bomb costs no more than a piece of it."""

from __future__ import annotations

import gzip
import tracemalloc
import zlib
from collections.abc import AsyncIterator

import pytest

from cascade.stages.decoding import BadEncoding, decoded

_BODY = b'[{"index": 0, "score": 0.5}]' * 5000


async def _in(pieces: list[bytes]) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece


def _cut(data: bytes, size: int) -> list[bytes]:
    return [data[start : start + size] for start in range(0, len(data), size)]


@pytest.mark.parametrize("size", [1, 1000, 10**9])
@pytest.mark.parametrize(
    ("encoding", "data"),
    [
        ("gzip", gzip.compress(_BODY)),
        (" GZIP", gzip.compress(_BODY)),
        ("x-gzip", gzip.compress(_BODY) + b"and more behind it"),
        ("deflate", zlib.compress(_BODY)),
        ("deflate", zlib.compress(_BODY)[2:-4]),
        ("identity", _BODY),
        ("", _BODY),
    ],
)
async def test_an_answer_is_decoded_however_it_arrives(encoding: str, data: bytes, size: int) -> None:
    """Piece by piece; of deflate there are two kinds, and servers send both."""
    assert b"".join([part async for part in decoded(_in(_cut(data, size)), encoding)]) == _BODY


@pytest.mark.parametrize(
    ("encoding", "data"),
    [("gzip", _BODY), ("deflate", b"\x78\x9c" + _BODY), ("br", _BODY), ("gzip, gzip", gzip.compress(_BODY))],
)
async def test_what_was_not_asked_for_is_an_error(encoding: str, data: bytes) -> None:
    """Another encoding, several on top of each other, or none that is told."""
    with pytest.raises(BadEncoding):
        _ = [part async for part in decoded(_in([data]), encoding)]


async def test_a_bomb_is_never_held_whole() -> None:
    """A megabyte that stands for 256, in one piece: who reads on until enough holds a piece at a time."""
    bomb = gzip.compress(b"\0" * 2**28, compresslevel=1)
    tracemalloc.start()
    size = 0
    async for part in decoded(_in([bomb]), "gzip"):
        size += len(part)
        if size > 2_000_000:
            break
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(bomb) > 1_000_000
    assert peak < 12_000_000 + len(bomb)
