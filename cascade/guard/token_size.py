"""Sizes of calls: two an octave of tokens, so that what is learnt of one is learnt of those of about as many tokens."""

from __future__ import annotations

import math
from typing import Final

__all__ = ["least_tokens", "size_of"]

_SIZES_PER_OCTAVE: Final = 2


def size_of(tokens: int) -> int:
    """Return the size that so many tokens are of."""
    return int(_SIZES_PER_OCTAVE * math.log2(max(1, tokens)))


def least_tokens(size: int) -> float:
    """Return the tokens from which on a call is of a size."""
    return math.exp2(size / _SIZES_PER_OCTAVE)
