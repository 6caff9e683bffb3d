"""Part queries into those that fit, those that choose the path, and those that certify."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from cascade.calibration.certificate import SplitPart
from cascade.errors import ConfigError
from cascade.replay.columns import IntArray
from cascade.replay.queries import query_digest
from cascade.replay.same_text import TEXT_COLUMN
from cascade.replay.table import ScoreTable

__all__ = ["Parted", "Shares", "betting_order", "part_of", "parted"]

_ROUNDING: Final = 1e-9


@dataclass(frozen=True, slots=True)
class Shares:
    """Which share of the queries fits, chooses the path and certifies. Raises ConfigError unless they sum to 1."""

    fit: float
    choose: float
    certify: float

    def __post_init__(self) -> None:
        """Check them."""
        parts = (self.fit, self.choose, self.certify)
        if not all(math.isfinite(part) and part >= 0.0 for part in parts) or abs(sum(parts) - 1.0) > _ROUNDING:
            raise ConfigError("--shares: three shares of at least 0 that sum to 1 are wanted: fit, choose, certify")
        if self.certify <= 0.0 or self.fit + self.choose <= 0.0:
            raise ConfigError("--shares: some queries must certify, and others must choose the path")


@dataclass(frozen=True, slots=True)
class Parted:
    """The parts of a table, and how many queries are in none. ``by`` is what was hashed."""

    fit: ScoreTable
    choose: ScoreTable
    certify: ScoreTable
    by: str
    trained: int
    repeated: int


def parted(table: ScoreTable, shares: Shares, seed: int, trained: Collection[str] = ()) -> Parted:
    """Part a table by a hash of each query's text, else of its id, so that one text is in one part only.

    ``trained`` are digests of the ids that a calibration was fitted on; these, and queries of the same text, are
    left out. Of queries of one text the first by id stays: the others are no further observation. A query's part
    depends on its own key and the seed alone.
    """
    by = TEXT_COLUMN if TEXT_COLUMN in table.attributes else "query_id"
    keys = [str(key) for key in (table.of_queries(by) if by == TEXT_COLUMN else table.query_ids)]
    seen = {key for key, name in zip(keys, table.query_ids, strict=True) if query_digest(name) in trained}
    parts: tuple[list[int], list[int], list[int]] = ([], [], [])
    taken: set[str] = set()
    left_out = repeated = 0
    for place, key in enumerate(keys):
        if key in seen:
            left_out += 1
        elif key in taken:
            repeated += 1
        else:
            taken.add(key)
            parts[_side(key, shares, seed)].append(place)
    fit, choose, certify = (table.take(part) for part in parts)
    return Parted(fit, choose, certify, by, left_out, repeated)


def _side(key: str, shares: Shares, seed: int) -> int:
    place = _place(key, seed)
    return 0 if place < shares.fit else 1 if place < shares.fit + shares.choose else 2


def _place(key: str, seed: int) -> float:
    """Return where in [0, 1) a key falls."""
    return int.from_bytes(hashlib.sha256(f"{seed}:{key}".encode()).digest()[:7]) / 2**56


def betting_order(names: Sequence[str], seed: int) -> IntArray:
    """Return the order in which losses are bet on: by hash, so that it is fixed before any is looked at."""
    return np.array(sorted(range(len(names)), key=lambda place: _place(f"order:{names[place]}", seed)), dtype=np.int64)


def part_of(names: Sequence[str]) -> SplitPart:
    """Return what a certificate tells of a part of these queries."""
    return SplitPart(queries=len(names), sha256=hashlib.sha256("\n".join(names).encode()).hexdigest())
