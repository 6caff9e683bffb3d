"""A digest of what an evaluation read: ids and values, whatever the layout of the file that they came from."""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Iterable

import numpy as np

from cascade.errors import ConfigError
from cascade.replay.columns import FloatArray
from cascade.replay.score_table import ScoreTable

__all__ = ["DataDigest", "data_sha256"]


def data_sha256(table: ScoreTable, columns: Iterable[str]) -> str:
    """Return ``sha256:`` of ids and of the values of these columns, whatever the layout of the file they came from.

    Columns are scorers, ``rank_first``, ``rel`` or ``q_grades``; the same ones in any order give the
    same digest. Raises ConfigError for another one.
    """
    digest = DataDigest(columns)
    digest.add(table)
    return digest.sha256()


class DataDigest:
    """The digest of a table whose queries come in parts, in order: that of the whole."""

    def __init__(self, columns: Iterable[str]) -> None:
        self._names = sorted(set(columns))
        self._digest = hashlib.sha256(json.dumps(self._names).encode())

    def add(self, table: ScoreTable) -> None:
        """Go on with the queries of a part."""
        names = self._names
        if "q_grades" in names and table.grades is None:
            raise ConfigError("no column q_grades")
        values = [_digestible(table, name) for name in names if name != "q_grades"]
        for query, query_id in enumerate(table.query_ids):
            start, end = table.offsets[query : query + 2]
            rows = sorted(range(start, end), key=table.doc_ids.__getitem__)
            told: list[object] = [query_id, [table.doc_ids[row] for row in rows]]
            told += [table.grades[query]] if "q_grades" in names and table.grades is not None else []
            text = json.dumps(told).encode()
            self._digest.update(struct.pack("<q", len(text)) + text)
            for column in values:
                self._digest.update(column[rows].tobytes())

    def sha256(self) -> str:
        """Return ``sha256:`` and the digest of what was added."""
        return f"sha256:{self._digest.hexdigest()}"


def _digestible(table: ScoreTable, name: str) -> FloatArray:
    """Return a column as little-endian floats with one zero and one NaN."""
    own = {"rank_first": table.rank_first, "rel": table.rel}.get(name)
    values = np.array(table.column(name) if own is None else own, dtype="<f8") + 0.0
    values[np.isnan(values)] = np.nan
    return values
