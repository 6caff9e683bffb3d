"""Read columns of a Parquet file as arrays, or say what is wrong with one: its name, row and rule, never its content."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from cascade.errors import ConfigError, lacks_extra

__all__ = [
    "Column",
    "FloatArray",
    "IntArray",
    "as_grades",
    "as_ids",
    "as_scores",
    "as_values",
    "as_whole_numbers",
    "is_number",
    "need_arrow",
]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Column:
    """An Arrow column, and for each value its row in the file, from 1."""

    name: str
    values: Any
    rows: IntArray

    def refuse(self, wrong: npt.NDArray[np.bool_], rule: str) -> None:
        """Raise ConfigError naming the first row of the file that is wrong, where one is, and how many others are."""
        found = np.sort(self.rows[wrong])
        if found.size:
            more = f", and {found.size - 1} more rows" if found.size > 1 else ""
            raise ConfigError(f"column {self.name}: row {found[0]}{more}: {rule}")


def need_arrow() -> None:
    """Raise ConfigError where the library that reads and writes Parquet is not installed."""
    try:
        import pyarrow.parquet  # noqa: F401
    except ImportError:
        raise lacks_extra("score tables need", "fit") from None


def is_number(kind: Any) -> bool:
    """Tell whether an Arrow type is an integer or a floating-point number."""
    import pyarrow as pa

    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def as_ids(column: Column) -> Any:
    """Return a column of ids as Arrow text. Integers become text; anything else, and a null, is a ConfigError."""
    import pyarrow as pa

    kind = column.values.type
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_integer(kind)):
        raise ConfigError(f"column {column.name}: ids are text, not {kind}")
    if column.values.null_count:
        column.refuse(column.values.is_null().to_numpy(), "there is no id")
    return column.values.cast(pa.large_string()).combine_chunks()


def as_scores(column: Column) -> FloatArray:
    """Return a numeric column as floats, NaN where a row has none. Raises ConfigError for an infinite value."""
    import pyarrow as pa

    values: FloatArray = np.array(column.values.cast(pa.float64(), safe=False).to_numpy(), dtype=np.float64)
    column.refuse(np.isinf(values), "the value is infinite")
    return values


def as_whole_numbers(column: Column, *, least: int, missing: int | None = None) -> IntArray:
    """Return a numeric column as integers of at least ``least``, with ``missing`` in place of nulls and NaN.

    Raises ConfigError for another type, a fraction, a smaller number, or a null where ``missing`` is None.
    """
    if not is_number(column.values.type):
        raise ConfigError(f"column {column.name}: whole numbers are wanted, not {column.values.type}")
    values = as_scores(column)
    absent = np.isnan(values)
    if missing is None:
        column.refuse(absent, "there is no number")
    values[absent] = least if missing is None else missing
    column.refuse((values != np.floor(values)) | (values < least), f"whole numbers of at least {least} are wanted")
    return values.astype(np.int64)


def as_grades(column: Column) -> tuple[tuple[int, ...], ...]:
    """Return a column of lists of positive grades, best first; a null is an empty list. Raises ConfigError."""
    import pyarrow as pa

    kind = column.values.type
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)) or not pa.types.is_integer(kind.value_type):
        raise ConfigError(f"column {column.name}: lists of whole numbers are wanted, not {kind}")
    lists = column.values.to_pylist()
    wrong = [any(grade is None or grade <= 0 for grade in grades or ()) for grades in lists]
    column.refuse(np.array(wrong, dtype=np.bool_), "a grade is not above 0")
    return tuple(tuple(sorted(grades or (), reverse=True)) for grades in lists)


def as_values(column: Any) -> tuple[Any, ...]:
    """Return any column as plain values, None for a null, with tuples in place of lists."""
    return tuple(tuple(value) if isinstance(value, list) else value for value in column.to_pylist())
