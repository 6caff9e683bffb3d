"""Cut text into the terms that BM25 counts: words where words are spaced, character bigrams where they are not."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from cascade.errors import lacks_extra

__all__ = ["DESCRIPTION", "term_cutter"]

DESCRIPTION: Final = (
    "English stop words and Snowball stems; character bigrams in runs of Japanese, Chinese, Thai, Lao, Khmer and "
    "Burmese; words and their character bigrams in runs of Hangul"
)

_UNSPACED: Final = (
    "\u0e01-\u0e3a\u0e40-\u0e4e\u0e50-\u0e59"  # Thai
    "\u0e81-\u0eff"  # Lao
    "\u1000-\u109f"  # Burmese
    "\u1780-\u17d3\u17dc-\u17e9"  # Khmer
    "\u3005-\u3007\u3041-\u309f\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff"  # iteration marks, kana
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"  # ideographs
)
_HANGUL: Final = "\u1100-\u11ff\u3131-\u318e\uac00-\ud7a3"
_RUN: Final = re.compile(f"[{_UNSPACED}]+|[{_HANGUL}]+|[^{_UNSPACED}{_HANGUL}]+")
_IS_UNSPACED: Final = re.compile(f"[{_UNSPACED}]")
_IS_HANGUL: Final = re.compile(f"[{_HANGUL}]")
_WORD: Final = re.compile(r"\b\w\w+\b")
_ANY_WORD: Final = re.compile(r"\w+")
_BIGRAM: Final = 2


def term_cutter() -> Callable[[str], list[str]]:
    """Return the function that cuts a text into terms. Raises ConfigError where its libraries are missing.

    Which way a text is cut is decided by the script of each run of characters, so a mixed text is cut
    both ways. Words of one character count only beside such a run: they are a number or a letter
    there ("\u7b2c3\u56de"), and mostly noise elsewhere. Full-width and half-width forms are made alike.
    """
    try:
        import Stemmer
        from bm25s.stopwords import STOPWORDS_EN
    except ImportError:
        raise lacks_extra("BM25 needs", "fit") from None
    stop_words, stemmer = frozenset(STOPWORDS_EN), Stemmer.Stemmer("english")

    def stems(words: Sequence[str]) -> list[str]:
        kept: list[str] = stemmer.stemWords([word for word in words if word not in stop_words])
        return kept

    def cut(text: str) -> list[str]:
        if text.isascii():
            return stems(_WORD.findall(text.lower()))
        text = unicodedata.normalize("NFKC", text).lower()
        runs = _RUN.findall(text)
        pattern = _WORD if len(runs) == 1 else _ANY_WORD
        return [term for run in runs for term in _of_run(run, pattern, stems)]

    return cut


def _of_run(run: str, word: re.Pattern[str], stems: Callable[[Sequence[str]], list[str]]) -> Iterator[str]:
    if _IS_UNSPACED.match(run):
        yield from _bigrams(run)
    elif _IS_HANGUL.match(run):
        yield from (run,) if len(run) <= _BIGRAM else (run, *_bigrams(run))
    else:
        yield from stems(word.findall(run))


def _bigrams(run: str) -> list[str]:
    return [run[start : start + _BIGRAM] for start in range(max(1, len(run) - 1))]
