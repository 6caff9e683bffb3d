"""Sizes of calls: two an octave of tokens, so that what is learnt of one is learnt of those of about as many tokens."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from cascade.text import Text
from cascade.tokens import PAIR_OVERHEAD_TOKENS

__all__ = ["least_tokens", "pair_tokens", "size_of"]

_SIZES_PER_OCTAVE: Final = 2


def size_of(tokens: int) -> int:
    """Return the size that so many tokens are of."""
    return int(_SIZES_PER_OCTAVE * math.log2(max(1, tokens)))


def least_tokens(size: int) -> float:
    """Return the tokens from which on a call is of a size."""
    return math.exp2(size / _SIZES_PER_OCTAVE)


def pair_tokens(query: Text, documents: Sequence[Text], max_length: int) -> int:
    """Estimate, cheaply, the tokens of pairs as far as a model reads them: by bytes, 3.5 a token, 3 outside ASCII."""
    around = _tokens(query.reveal(), max_length) + PAIR_OVERHEAD_TOKENS
    return sum([min(_tokens(document.reveal(), max_length) + around, max_length) for document in documents])


def _tokens(text: str, most: int) -> int:
    length = len(text)
    if length >= most * 4:  # as long as is read in any script, so its bytes need not be counted
        return most
    return length * 2 // 7 if text.isascii() else len(text.encode("utf-8", "surrogatepass")) // 3
