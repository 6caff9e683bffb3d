"""A score as it is kept outside the process."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cascade.cache.packed import Packer
from tests.cache.arrange import SECRET, keys_of

_PACKER = Packer(SECRET)
_ONE, _OTHER = keys_of(2)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_score_is_read_as_it_was_written(score: float) -> None:
    """Bit for bit, the sign of zero too."""
    read = _PACKER.unpack(_ONE, _PACKER.pack(_ONE, score))
    assert read == score
    assert math.copysign(1.0, read) == math.copysign(1.0, score)


@given(st.binary(max_size=40))
def test_anything_else_reads_as_none(written: bytes) -> None:
    """Whatever somebody put there, it is a miss."""
    assert _PACKER.unpack(_ONE, written) is None


@given(st.floats(allow_nan=False, allow_infinity=False), st.integers(0, 16), st.integers(1, 255))
def test_a_score_that_was_altered_reads_as_none(score: float, place: int, change: int) -> None:
    """In any byte: of the version, of the score or of its proof."""
    packed = bytearray(_PACKER.pack(_ONE, score))
    packed[place] ^= change
    assert _PACKER.unpack(_ONE, bytes(packed)) is None


def test_a_score_holds_for_its_key_and_its_secret_alone() -> None:
    """One that was copied to another pair, or written by somebody without the secret, reads as none."""
    packed = _PACKER.pack(_ONE, 0.5)
    assert _PACKER.unpack(_OTHER, packed) is None
    assert Packer(b"another secret of no one").unpack(_ONE, packed) is None


@pytest.mark.parametrize("score", [math.nan, math.inf, -math.inf])
def test_what_is_no_score_reads_as_none(score: float) -> None:
    """Even with a proof."""
    assert _PACKER.unpack(_ONE, _PACKER.pack(_ONE, score)) is None
