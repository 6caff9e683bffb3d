"""Tell the main script of a text."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import numpy as np

__all__ = ["Script", "main_script"]


class Script(StrEnum):
    """What a query is mostly written in. Japanese is told from other Han by its kana."""

    LATIN = "latin"
    JAPANESE = "japanese"
    HAN = "han"
    HANGUL = "hangul"
    CYRILLIC = "cyrillic"
    GREEK = "greek"
    ARABIC = "arabic"
    HEBREW = "hebrew"
    DEVANAGARI = "devanagari"
    THAI = "thai"
    OTHER = "other"


_BLOCKS: Final = (
    (0x0041, 0x005A, Script.LATIN),
    (0x0061, 0x007A, Script.LATIN),
    (0x00C0, 0x024F, Script.LATIN),
    (0x0370, 0x03FF, Script.GREEK),
    (0x0400, 0x052F, Script.CYRILLIC),
    (0x0590, 0x05FF, Script.HEBREW),
    (0x0600, 0x06FF, Script.ARABIC),
    (0x0900, 0x097F, Script.DEVANAGARI),
    (0x0E00, 0x0E7F, Script.THAI),
    (0x1100, 0x11FF, Script.HANGUL),
    (0x1E00, 0x1EFF, Script.LATIN),
    (0x3005, 0x3007, Script.HAN),
    (0x3041, 0x30FF, Script.JAPANESE),
    (0x3130, 0x318F, Script.HANGUL),
    (0x31F0, 0x31FF, Script.JAPANESE),
    (0x3400, 0x4DBF, Script.HAN),
    (0x4E00, 0x9FFF, Script.HAN),
    (0xAC00, 0xD7AF, Script.HANGUL),
    (0xF900, 0xFAFF, Script.HAN),
    (0xFF21, 0xFF3A, Script.LATIN),
    (0xFF41, 0xFF5A, Script.LATIN),
    (0xFF66, 0xFF9F, Script.JAPANESE),
    (0x20000, 0x3FFFF, Script.HAN),
)
_SCRIPTS: Final = tuple(Script)
_OF_POINT: Final = np.full(0x40001, _SCRIPTS.index(Script.OTHER), dtype=np.uint8)
"""The script of a code point as a position in the enum; the last entry stands for all beyond."""
for _first, _last, _script in _BLOCKS:
    _OF_POINT[_first : _last + 1] = _SCRIPTS.index(_script)
_LATIN_LETTERS_PER_CHARACTER: Final = 3.5
"""Letters that weigh as much as one character of a script that is not spaced: their ratio of tokens."""


def main_script(text: str) -> Script:
    """Return the script that most of a text's tokens are in; OTHER where it has no letter of a script known here."""
    if text.isascii():
        return Script.LATIN if any(map(str.isalpha, text)) else Script.OTHER
    points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype=np.uint32)
    counts = np.bincount(_OF_POINT.take(points, mode="clip"), minlength=len(_SCRIPTS)).tolist()
    weights = {
        script: count
        if script in {Script.JAPANESE, Script.HAN, Script.HANGUL}
        else count / _LATIN_LETTERS_PER_CHARACTER
        for script, count in zip(_SCRIPTS, counts, strict=True)
        if script is not Script.OTHER
    }
    if weights[Script.JAPANESE]:
        weights[Script.JAPANESE] += weights.pop(Script.HAN)
    most = max(weights, key=lambda script: weights[script])
    return most if weights[most] else Script.OTHER
