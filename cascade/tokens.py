"""Estimate token counts and clip text without a tokenizer."""

from __future__ import annotations

from typing import Final

import numpy as np

from cascade.text import Text, from_first_seen

__all__ = ["MOST_CHARACTERS_PER_TOKEN", "PAIR_OVERHEAD_TOKENS", "beginning_of", "clip_to_tokens", "estimate_tokens"]

PAIR_OVERHEAD_TOKENS: Final = 4
"""Special tokens that an engine adds around a (query, document) pair."""

MOST_CHARACTERS_PER_TOKEN: Final = 24
"""Characters beyond this many for each token of a window are not read by any model, so they need not be looked at."""

_CHARACTERS_PER_TOKEN: Final = 3.5
_DENSE_RANGES: Final = (
    (0x1100, 0x11FF),
    (0x2E80, 0x9FFF),
    (0xAC00, 0xD7AF),
    (0xF900, 0xFAFF),
    (0xFE30, 0xFE4F),
    (0xFF00, 0xFFEF),
    (0x20000, 0x3FFFF),
)
"""Hangul, kana, ideographs and their full-width forms."""
_IS_DENSE: Final = np.zeros(0x40001, dtype=np.bool_)
"""Whether a code point is dense; the last entry stands for all beyond."""
for _first, _last in _DENSE_RANGES:
    _IS_DENSE[_first : _last + 1] = True


def estimate_tokens(text: str) -> int:
    """Estimate the tokens of a text: one for a CJK character, else one for 3.5 characters, at least one.

    An estimate plans chunks and budgets. It is never a limit: limits are the server's to state.
    """
    dense = 0 if text.isascii() else _count_dense(text)
    return dense + round((len(text) - dense) / _CHARACTERS_PER_TOKEN) or 1


def _count_dense(text: str) -> int:
    points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype=np.uint32)
    return int(np.count_nonzero(_IS_DENSE.take(points, mode="clip")))


def beginning_of(text: str, characters: int) -> str:
    """Return at most so many characters from a text's beginning; blank ones at its head give way to others."""
    beginning = text[:characters]
    return from_first_seen(text)[:characters] if Text(beginning).is_blank else beginning


def clip_to_tokens(text: str, tokens: int, *, measured_tokens: int | None = None) -> str:
    """Cut a text at the end so that it has about ``tokens`` tokens, and never more characters than before.

    ``measured_tokens`` is what a tokenizer counted for the whole text; with it the ratio of
    characters to tokens is the text's own, and a tenth is kept spare because tokens are not evenly
    spread. Without it the estimate of this module is used.
    """
    have = measured_tokens if measured_tokens is not None else estimate_tokens(text)
    if tokens <= 0:
        return ""
    if have <= tokens:
        return text
    return text[: max(1, int(len(text) * tokens / have * 0.9))]
