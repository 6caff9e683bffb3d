"""The slices of a comparison: what a pair's text is like, and which candidates have a value of an attribute."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from cascade.parity.lists import CandidateList
from cascade.signals.script import main_script
from cascade.tokens import PAIR_OVERHEAD_TOKENS, estimate_tokens

__all__ = ["labels_of", "length_label", "values_of"]

_SHORT_TOKENS: Final = 24


def labels_of(query: str, documents: Sequence[str], max_length: int | None) -> dict[str, tuple[str, ...]]:
    """Return the labels of each pair: scripts, digits and length against the window, by estimate."""
    around = estimate_tokens(query) + PAIR_OVERHEAD_TOKENS
    asked = _has_digit(query)
    return {
        "query_script": (str(main_script(query)),) * len(documents),
        "document_script": tuple(str(main_script(text)) for text in documents),
        "digits": tuple("yes" if asked or _has_digit(text) else "no" for text in documents),
        "length": tuple(length_label(around + estimate_tokens(text), max_length) for text in documents),
    }


def length_label(tokens: float, max_length: int | None) -> str:
    """Return ``over-length``, ``short`` (at most 24 tokens) or ``medium``."""
    if max_length is not None and tokens > max_length:
        return "over-length"
    return "short" if tokens <= _SHORT_TOKENS else "medium"


def _has_digit(text: str) -> bool:
    return any(map(str.isdigit, text))


def values_of(lists: Sequence[CandidateList]) -> Iterator[tuple[str, str]]:
    """Give each attribute with each of its values, sorted, where an attribute has at least two values."""
    found: dict[str, set[str]] = {}
    for item in lists:
        for attribute, labels in item.labels.items():
            found.setdefault(attribute, set()).update(labels)
    for attribute, values in sorted(found.items()):
        if len(values) > 1:
            yield from ((attribute, value) for value in sorted(values))
