"""Paired bootstrap over queries: every figure of a report is computed on the same resamples."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from cascade.replay.columns import FloatArray

__all__ = ["CONFIDENCE", "LEAST_QUERIES", "Figure", "Resamples", "figure", "minus", "resampled", "undefined"]

CONFIDENCE: Final = 0.95
LEAST_QUERIES: Final = 10
"""With fewer queries no interval is given: the bootstrap is far too narrow then."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A number and its interval. Either is None, as an end of the interval may be, and ``reason`` says why."""

    value: float | None
    interval: tuple[float | None, float | None] | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Resamples:
    """How often each query counts (1 + B, Q): once in the first row, as drawn with replacement in the others."""

    counts: FloatArray

    @property
    def queries(self) -> int:
        """Return Q."""
        return int(self.counts.shape[1])

    def means(self, values: FloatArray) -> FloatArray:
        """Return the mean over queries of values (..., Q), as (1 + B, ...)."""
        return np.asarray(self.counts @ values.T) / self.queries


def resampled(queries: int, resamples: int, seed: int) -> Resamples:
    """Draw ``resamples`` times as many queries as there are, with replacement."""
    drawn = np.random.default_rng(seed).multinomial(queries, np.full(queries, 1.0 / queries), size=resamples)
    return Resamples(np.concatenate([np.ones((1, queries)), drawn]))


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
