"""The type that query and document text travels in."""

from __future__ import annotations

import re
from typing import Final, NoReturn

__all__ = ["Text", "from_first_seen"]

_SEEN: Final = re.compile(
    r"[^\s\x00-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164"
    r"\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
"""A character that is no white space, no control, and none of Unicode's Default_Ignorable_Code_Point."""


class Text:
    """Hold text so that it cannot be printed, logged or pickled by accident.

    ``repr``, ``str`` and ``format`` give a redacted form; only :meth:`reveal` gives the text.
    Instances are immutable and compare by value.
    """

    __slots__ = ("_value",)

    _value: str

    def __init__(self, value: str) -> None:
        object.__setattr__(self, "_value", value)

    def reveal(self) -> str:
        """Return the text itself. Call it where the text leaves for a model, and nowhere else."""
        return self._value

    @property
    def is_blank(self) -> bool:
        """Tell whether the text is empty, or white space and characters that nobody sees.

        A tokenizer drops those, and some models score an empty document above every other.
        """
        first = self._value[:1]
        return not (first.isascii() and first.isalnum()) and _SEEN.search(self._value) is None

    def __len__(self) -> int:
        return len(self._value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Text) and other._value == self._value

    def __hash__(self) -> int:
        return hash((Text, self._value))

    def __repr__(self) -> str:
        return f"Text(<{len(self._value)} characters>)"

    def __format__(self, format_spec: str) -> str:
        return repr(self)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError("Text is immutable")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError("Text is immutable")

    def __reduce__(self) -> NoReturn:
        raise TypeError("Text is never pickled")


def from_first_seen(text: str) -> str:
    """Return a text from its first character on that is not blank, nothing where there is none."""
    found = _SEEN.search(text)
    return "" if found is None else text[found.start() :]
