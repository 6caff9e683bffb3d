"""Paired bootstrap over queries: every figure of a report is computed on the same resamples."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from cascade.replay.columns import FloatArray

__all__ = ["CONFIDENCE", "LEAST_QUERIES", "Figure", "Resamples", "figure", "minus", "resampled", "undefined"]

CONFIDENCE: Final = 0.95
LEAST_QUERIES: Final = 10
"""With fewer queries no interval is given: the bootstrap is far too narrow then."""
_BLOCK: Final = 4_000_000
"""Counts that are held as floats at a time."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A number and its interval. Either is None, as an end of the interval may be, and ``reason`` says why."""

    value: float | None
    interval: tuple[float | None, float | None] | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Resamples:
    """How often each query counts (1 + B, Q): once in the first row, as drawn with replacement in the others."""

    counts: NDArray[np.uint8]

    @property
    def queries(self) -> int:
        """Return Q."""
        return int(self.counts.shape[1])

    def means(self, values: NDArray[Any]) -> FloatArray:
        """Return the mean over queries of values (..., Q), as (1 + B, ...).

        Each call reads all counts: what is wanted together is best asked for together.
        """
        weighed = np.asarray(values, dtype=np.float64).T
        found = np.empty((len(self.counts), *weighed.shape[1:]))
        for rows in _blocks(len(self.counts), self.queries):
            found[rows] = self.counts[rows].astype(np.float64) @ weighed
        return found / self.queries


@lru_cache(maxsize=2)
def resampled(queries: int, resamples: int, seed: int) -> Resamples:
    """Draw ``resamples`` times as many queries as there are, with replacement.

    The last two drawings are kept: all figures of the same queries are of the same resamples.
    """
    counts = np.ones((1 + resamples, queries), dtype=np.uint8)  # one query 256 times in a drawing: once in 10^507
    draw, shares = np.random.default_rng(seed), np.full(queries, 1.0 / queries)
    for rows in _blocks(resamples, queries):
        counts[1:][rows] = draw.multinomial(queries, shares, size=rows.stop - rows.start)
    counts.setflags(write=False)
    return Resamples(counts)


def _blocks(rows: int, width: int) -> Iterator[slice]:
    """Yield the rows of a matrix in blocks of at most ``_BLOCK`` numbers, one row at least."""
    size = max(1, _BLOCK // max(1, width))
    yield from (slice(start, min(start + size, rows)) for start in range(0, rows, size))


def figure(draws: FloatArray, queries: int, unreached: str) -> Figure:
    """Return the figure of the sample, ``draws[0]``, with the percentile interval of its resamples.

    A draw that is not finite stands for a figure that could not be computed; ``unreached`` says what
    that means. Beyond every number, it belongs to the end of the interval on its side.
    """
    value = float(draws[0]) if math.isfinite(draws[0]) else None
    if queries < LEAST_QUERIES:
        return Figure(value, None, unreached if value is None else f"fewer than {LEAST_QUERIES} queries")
    tail = (1.0 - CONFIDENCE) / 2.0
    low, high = np.quantile(draws[1:], (tail, 1.0 - tail), method="inverted_cdf").tolist()
    ends = (low if math.isfinite(low) else None, high if math.isfinite(high) else None)
    missing = float(np.mean(~np.isfinite(draws[1:])))
    if value is None:
        return Figure(None, ends if ends != (None, None) else None, unreached)
    return Figure(value, ends, f"{unreached} in {missing:.1%} of resamples" if None in ends else None)


def undefined(reason: str) -> Figure:
    """Return a figure that cannot be had at all."""
    return Figure(None, None, reason)


def minus(ours: FloatArray, theirs: FloatArray) -> FloatArray:
    """Return paired differences. Where neither of two figures is finite on the same side they do not differ."""
    with np.errstate(invalid="ignore"):
        difference = ours - theirs
    return np.where(np.isnan(difference), 0.0, difference)
