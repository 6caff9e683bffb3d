"""Read columns of a Parquet file as arrays, or say what is wrong with one: its name and its rule, never its content."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from cascade.errors import ConfigError

__all__ = [
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


def need_arrow() -> None:
    """Raise ConfigError where the library that reads and writes Parquet is not installed."""
    try:
        import pyarrow.parquet  # noqa: F401
    except ImportError:
        raise ConfigError("score tables need cascade-rerank[fit]") from None


def is_number(kind: Any) -> bool:
    """Tell whether an Arrow type is an integer or a floating-point number."""
    import pyarrow as pa

    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def as_ids(name: str, column: Any) -> Any:
    """Return a column of ids as Arrow text. Integers become text; anything else, and a null, is a ConfigError."""
    import pyarrow as pa

    kind = column.type
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_integer(kind)):
        raise ConfigError(f"column {name}: ids are text, not {kind}")
    if column.null_count:
        raise ConfigError(f"column {name}: {column.null_count} rows have none")
    return column.cast(pa.large_string()).combine_chunks()


def as_scores(name: str, column: Any) -> FloatArray:
    """Return a numeric column as floats, NaN where a row has none. Raises ConfigError for an infinite value."""
    import pyarrow as pa

    values: FloatArray = np.array(column.cast(pa.float64(), safe=False).to_numpy(), dtype=np.float64)
    if np.isinf(values).any():
        raise ConfigError(f"column {name}: {int(np.isinf(values).sum())} rows hold an infinite value")
    return values


def as_whole_numbers(name: str, column: Any, *, least: int, missing: int | None = None) -> IntArray:
    """Return a numeric column as integers of at least ``least``, with ``missing`` in place of nulls and NaN.

    Raises ConfigError for another type, a fraction, a smaller number, or a null where ``missing`` is None.
    """
    if not is_number(column.type):
        raise ConfigError(f"column {name}: whole numbers are wanted, not {column.type}")
    values = as_scores(name, column)
    absent = np.isnan(values)
    if absent.any() and missing is None:
        raise ConfigError(f"column {name}: {int(absent.sum())} rows have none")
    values[absent] = least if missing is None else missing
    if not (values == np.floor(values)).all() or (values < least).any():
        raise ConfigError(f"column {name}: whole numbers of at least {least} are wanted")
    return values.astype(np.int64)


def as_grades(name: str, column: Any) -> tuple[tuple[int, ...], ...]:
    """Return a column of lists of positive grades, best first; a null is an empty list. Raises ConfigError."""
    import pyarrow as pa

    kind = column.type
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)) or not pa.types.is_integer(kind.value_type):
        raise ConfigError(f"column {name}: lists of whole numbers are wanted, not {kind}")
    lists = column.to_pylist()
    if any(grade is None or grade <= 0 for grades in lists for grade in grades or ()):
        raise ConfigError(f"column {name}: a grade is not above 0")
    return tuple(tuple(sorted(grades or (), reverse=True)) for grades in lists)


def as_values(column: Any) -> tuple[Any, ...]:
    """Return any column as plain values, None for a null, with tuples in place of lists."""
    return tuple(tuple(value) if isinstance(value, list) else value for value in column.to_pylist())
