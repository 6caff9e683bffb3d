"""Estimate token counts and clip text without a tokenizer."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["MOST_CHARACTERS_PER_TOKEN", "PAIR_OVERHEAD_TOKENS", "beginning_of", "clip_to_tokens", "estimate_tokens"]

PAIR_OVERHEAD_TOKENS: Final = 4
"""Special tokens that an engine adds around a (query, document) pair."""

MOST_CHARACTERS_PER_TOKEN: Final = 24
"""Characters beyond this many for each token of a window are not read by any model, so they need not be looked at."""

_CHARACTERS_PER_TOKEN: Final = 3.5
_DENSE: Final = re.compile(
    "[\u1100-\u11ff\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\ufe30-\ufe4f\uff00-\uffef\U00020000-\U0003ffff]"
)
"""Hangul, kana, ideographs and their full-width forms."""


def estimate_tokens(text: str) -> int:
    """Estimate the tokens of a text: one for a CJK character, else one for 3.5 characters, at least one.

    An estimate plans chunks and budgets. It is never a limit: limits are the server's to state.
    """
    dense = 0 if text.isascii() else len(_DENSE.findall(text))
    return max(1, dense + round((len(text) - dense) / _CHARACTERS_PER_TOKEN))


def beginning_of(text: str, characters: int) -> str:
    """Return at most so many characters from a text's beginning; blank ones at its head give way to others."""
    beginning = text[:characters]
    return text.lstrip()[:characters] if beginning.isspace() else beginning


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
