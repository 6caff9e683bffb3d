"""Numbers of which few differ, kept as one narrow code each: 8 bytes become one or two, to the last bit the same."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from cascade.replay.columns import FloatArray, IntArray

__all__ = ["Coded", "Decoding", "Values", "decoded", "taken", "whole_numbers"]

_Key = TypeVar("_Key")


@dataclass(frozen=True, slots=True)
class Coded:
    """``values[codes]``: settings by queries (S, Q), of V different values (V,)."""

    values: FloatArray
    codes: NDArray[Any]

    @classmethod
    def of(cls, numbers: Values) -> Coded:
        """Return numbers (S, Q) as codes of the narrowest type that counts them."""
        if isinstance(numbers, Coded):
            return numbers
        values, codes = np.unique(numbers, return_inverse=True)
        return cls(values, codes.reshape(numbers.shape).astype(np.min_scalar_type(values.size)))


Values = NDArray[Any] | Coded
"""Numbers (S, Q), plain or coded."""


def decoded(values: Values, rows: IntArray | slice = slice(None)) -> FloatArray:
    """Return some of the rows as plain numbers."""
    return np.asarray(values.values[values.codes[rows]] if isinstance(values, Coded) else values[rows])


def taken(values: Any, at: Any) -> Any:
    """Return a part of plain or coded numbers, coded where they were."""
    return Coded(values.values, values.codes[at]) if isinstance(values, Coded) else values[at]


def whole_numbers(values: NDArray[Any]) -> NDArray[Any]:
    """Return counts as 32-bit integers where that loses nothing, else as they are."""
    with np.errstate(invalid="ignore"):
        narrow = values.astype(np.int32)
    return narrow if np.array_equal(narrow, values) else values


class Decoding(Mapping[_Key, FloatArray]):
    """A mapping to numbers (S, Q) that decodes what is asked for; nobody else keeps it."""

    def __init__(self, kept: Mapping[_Key, Values]) -> None:
        self.kept = kept

    def __getitem__(self, key: _Key) -> FloatArray:
        return decoded(self.kept[key])

    def __iter__(self) -> Iterator[_Key]:
        return iter(self.kept)

    def __len__(self) -> int:
        return len(self.kept)
