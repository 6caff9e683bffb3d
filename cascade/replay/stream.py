"""Read a score table from its file some whole queries at a time, however its row groups were cut."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np

from cascade.replay.columns import Column, IntArray, as_ids
from cascade.replay.score_table import ScoreTable
from cascade.replay.table import check_columns, checked_rows, opened

__all__ = ["Unsorted", "streamed"]

_BATCH_ROWS: Final = 32_768


class Unsorted(Exception):
    """A file's rows are not sorted by query id as text: ``row`` of ``rows`` stands behind a greater one."""

    def __init__(self, row: int, rows: int) -> None:
        super().__init__(row, rows)
        self.row, self.rows = row, rows


def streamed(path: Path, queries: int) -> Iterator[ScoreTable]:
    """Yield the table of a file ``queries`` whole queries at a time, the last time as many as are left.

    Each is checked as :func:`cascade.replay.table.read_table` checks a whole. Raises ConfigError, and Unsorted.
    """
    with opened(path) as file:
        for first_row, read in _whole_queries(file, queries):
            yield checked_rows(read, first_row)


def _whole_queries(file: Any, queries: int) -> Iterator[tuple[int, Any]]:
    """Yield (number of the first row, Arrow table)."""
    import pyarrow as pa

    schema = file.schema_arrow
    check_columns(schema.names, file.metadata.num_rows)
    held, row = schema.empty_table(), 1
    for batch in file.iter_batches(batch_size=_BATCH_ROWS, use_threads=False):
        held = pa.concat_tables([held, pa.Table.from_batches([batch]).replace_schema_metadata(schema.metadata)])
        starts = _starts(held, row, file.metadata.num_rows)
        while len(starts) > queries:  # the last query that began may go on
            cut = int(starts[queries])
            yield row, held.slice(0, cut)
            held, row, starts = held.slice(cut), row + cut, starts[queries:] - cut
    yield row, held


def _starts(held: Any, first_row: int, rows: int) -> IntArray:
    """Return where queries begin, counted from 0. Raises Unsorted."""
    import pyarrow.compute as pc

    numbers = np.arange(first_row, first_row + held.num_rows)
    ids = as_ids(Column("query_id", held["query_id"], numbers))
    before, after = ids.slice(0, len(ids) - 1), ids.slice(1)
    falls = np.flatnonzero(pc.less(after, before).to_numpy(zero_copy_only=False))
    if falls.size:
        raise Unsorted(int(numbers[falls[0] + 1]), rows)
    new = np.flatnonzero(pc.not_equal(after, before).to_numpy(zero_copy_only=False))
    return np.concatenate([[0], new + 1])
