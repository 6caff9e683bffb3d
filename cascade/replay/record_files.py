"""Go through files of decision records line by line, JSON lines or Parquet, told apart by how they begin.

Of a file of lines one line is held at a time, of Parquet the columns of a row group and some rows of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final

from cascade.errors import ConfigError, lacks_extra
from cascade.telemetry.record_rows import PARQUET_FORMAT, line_of

__all__ = ["MOST_LINE_BYTES", "lines_of"]

MOST_LINE_BYTES: Final = 64 * 1024 * 1024
"""A line that is longer is passed over as one that is torn."""
_MAGIC: Final = b"PAR1"
_ROWS: Final = 64
_READ_BYTES: Final = 1 << 20
_KEY: Final = b"cascade"


def lines_of(path: Path) -> Iterator[bytes]:
    """Yield the lines of a file of records. Raises ConfigError for one that cannot be read."""
    try:
        with path.open("rb") as file:
            head = file.read(len(_MAGIC))
            file.seek(0)
            yield from _of_parquet(file, path) if head == _MAGIC else _of_lines(file)
    except OSError as error:
        raise ConfigError(f"records {path}: cannot be read: {type(error).__name__}") from None


def _of_lines(file: BinaryIO) -> Iterator[bytes]:
    while line := file.readline(MOST_LINE_BYTES):
        whole = line.endswith(b"\n") or len(line) < MOST_LINE_BYTES
        if not whole:
            while (rest := file.readline(MOST_LINE_BYTES)) and not rest.endswith(b"\n"):
                pass
        yield line if whole else b""


def _of_parquet(file: BinaryIO, path: Path) -> Iterator[bytes]:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise lacks_extra(f"records {path}: Parquet needs", "fit") from None
    try:
        opened = pq.ParquetFile(file, pre_buffer=False, buffer_size=_READ_BYTES)
        _check_version(opened, path)
        for batch in opened.iter_batches(batch_size=_ROWS):
            yield from map(line_of, batch.to_pylist())
    except (pa.ArrowException, ValueError, OverflowError, TypeError, AttributeError) as error:
        # ValueError: text or a time that is none; the last two: columns of other types than records have
        raise ConfigError(f"records {path}: cannot be read as Parquet: {type(error).__name__}") from None


def _check_version(opened: Any, path: Path) -> None:
    told = (opened.schema_arrow.metadata or {}).get(_KEY, b"")
    if told != PARQUET_FORMAT.encode():
        another = told.startswith(b"cascade-records-parquet/")
        what = "written by another version" if another else "no Parquet file of records"
        raise ConfigError(f"records {path}: {what}; {PARQUET_FORMAT} is read")
