"""The type that query and document text travels in."""

from __future__ import annotations

from typing import NoReturn

__all__ = ["Text"]


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
        """Tell whether the text is empty or white space only."""
        return not self._value or self._value.isspace()

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
