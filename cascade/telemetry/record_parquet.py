"""The columns of decision records in Arrow's types, and their tables. Needs pyarrow, which is imported when called."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from cascade.telemetry.record_rows import COLUMNS, ESTIMATES, PARQUET_FORMAT, ROUNDS, WOULD, row_of

__all__ = ["joined", "record_schema", "record_table", "writer_of"]

_COMPRESSION: Final = "zstd"


def record_schema() -> Any:
    """Return the columns, with the version in the metadata."""
    import pyarrow as pa

    numbers = pa.list_(pa.float64())
    kinds: dict[str, Any] = {
        "word": pa.string(),
        "words": pa.list_(pa.string()),
        "count": pa.int64(),
        "places": pa.list_(pa.int64()),
        "number": pa.float64(),
        "numbers": numbers,
        "truth": pa.bool_(),
        "time": pa.timestamp("ms", "UTC"),
        "named number": pa.map_(pa.string(), pa.float64()),
        "named numbers": pa.map_(pa.string(), numbers),
    }

    def struct(names: Mapping[str, str]) -> Any:
        return pa.struct([(name, kinds[kind]) for name, kind in names.items()])

    kinds["estimates"] = struct(ESTIMATES)
    kinds["rounds"] = pa.list_(struct(ROUNDS))
    kinds["would"] = struct(WOULD)
    fields = [("kind", pa.string()), *((name, kinds[kind]) for name, kind in COLUMNS.items()), ("line", pa.string())]
    return pa.schema(fields, metadata={"cascade": PARQUET_FORMAT})


def record_table(lines: Iterable[bytes], schema: Any) -> Any:
    """Return lines as a table. Where a value does not fit its column, all of them are kept whole."""
    import pyarrow as pa

    read = list(lines)
    try:
        return pa.Table.from_pylist([row_of(line) for line in read], schema=schema)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return pa.Table.from_pylist([row_of(line, whole=True) for line in read], schema=schema)


def joined(tables: Sequence[Any]) -> Any:
    """Return tables as one."""
    import pyarrow as pa

    return pa.concat_tables(tables)


def writer_of(file: Any, schema: Any) -> Any:
    """Return what writes tables to an open file, compressed, a row group at a time."""
    import pyarrow.parquet as pq

    return pq.ParquetWriter(file, schema, compression=_COMPRESSION)
