"""What one channel's scores say by their shape: gaps, entropy, spread and decay."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "MISSING",
    "Curve",
    "FloatArray",
    "IntArray",
    "curvature",
    "entropy",
    "gap",
    "gap_tail",
    "nqc",
    "separation",
    "shape_exponential",
    "shape_linear",
    "shape_uniform",
    "smv",
    "wig",
]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.intp]

MISSING: Final = math.nan
"""What a signal is where its inputs are absent or say nothing."""

_MOST: Final = 1000.0
"""Ratios are clipped here: beyond it a greater one says no more."""
_TAIL_FROM: Final = 25
_HEAD: Final = 3
_LEAST_FOR_A_TAIL: Final = 3
_READ: Final = 100
_NOISE: Final = 1e-9
"""Spreads of the tail below this share of the whole spread are rounding."""
_LARGE: Final = 2.0**500
_SMALL: Final = 2.0**-500
_RESCALE: Final = 2.0**600
_MAD_TO_SD: Final = 1.4826
_MEAN_DEVIATION_TO_SD: Final = 1.2533
_DECAY: Final = 5.0


class Curve:
    """One channel's finite scores, sorted once.

    ``scores`` (n,) are in first-stage order; what is not finite counts as missing. ``order`` (m,) holds
    the positions of the finite ones, best first, ties in first-stage order. ``below`` (m,) is each ranked
    score minus the best, in ``unit`` times the score's own unit: a power of two that keeps squares finite.
    ``top`` is the best score in the same unit. Parts that not every signal reads are computed when asked for.
    """

    __slots__ = ("_middle", "_places", "_scale", "below", "count", "order", "scores", "top", "total", "unit")

    def __init__(self, scores: FloatArray) -> None:
        order = (-scores).argsort(kind="stable")
        ranked = scores[order]
        self.total = len(scores)
        if self.total and not (math.isfinite(ranked[0]) and math.isfinite(ranked[-1])):
            order = order[np.isfinite(ranked)]
            ranked = scores[order]
            scores = np.where(np.isfinite(scores), scores, -np.inf)
        self.scores: FloatArray = scores
        self.order: IntArray = order
        self.count = len(order)
        self.unit = 1.0
        self.top = float(ranked[0]) if self.count else MISSING
        peak = max(abs(self.top), abs(float(ranked[-1]))) if self.count else 1.0
        if peak > _LARGE or 0.0 < peak < _SMALL:
            self.unit = 1.0 / _RESCALE if peak > 1.0 else _RESCALE
            ranked = ranked * self.unit
            self.top = float(ranked[0])
        self.below: FloatArray = ranked - self.top
        self._scale: float | None = None
        self._middle = MISSING
        self._places: IntArray | None = None

    @property
    def spread(self) -> float:
        """Return how far the best lies above the worst; zero where all are equal."""
        return -float(self.below[-1])

    @property
    def middle(self) -> float:
        """Return the median of the tail, in the terms of ``below``."""
        self._measure_tail()
        return self._middle

    @property
    def scale(self) -> float:
        """Return the tail's robust standard deviation; zero only where all scores are equal.

        The tail are the ranks from 26 on, or the lower half of a list that is shorter than 50. It is 1.4826
        times the median absolute deviation; where more than half of the tail is tied, 1.2533 times the mean
        absolute deviation of the tail, else that of the whole list.
        """
        return self._measure_tail()

    def _measure_tail(self) -> float:
        if self._scale is not None:
            return self._scale
        tail = self.below[min(_TAIL_FROM, self.count // 2) :]
        self._middle = _middle(tail)
        deviations = np.abs(tail - self._middle)
        least = self.spread * _NOISE
        deviations.sort()
        scale = _MAD_TO_SD * _middle(deviations)
        if scale <= least:
            scale = _MEAN_DEVIATION_TO_SD * float(np.add.reduce(deviations)) / len(tail)
        if scale <= least:
            whole = np.abs(self.below - self._middle)
            scale = _MEAN_DEVIATION_TO_SD * float(np.add.reduce(whole)) / self.count
        self._scale = scale
        return scale

    @property
    def places(self) -> IntArray:
        """Return the rank of each candidate from zero, (n,) in first-stage order; a missing one has rank n."""
        if self._places is None:
            self._places = np.full(self.total, self.total, dtype=np.intp)
            self._places[self.order] = _counting(self.count)
        return self._places


@lru_cache(maxsize=512)
def _counting(count: int) -> IntArray:
    numbers = np.arange(count)
    numbers.flags.writeable = False
    return numbers


def _middle(ascending_or_descending: FloatArray) -> float:
    half, odd = divmod(len(ascending_or_descending), 2)
    upper = float(ascending_or_descending[half])
    return upper if odd else (float(ascending_or_descending[half - 1]) + upper) / 2.0


def _clipped(value: float) -> float:
    return min(_MOST, max(-_MOST, value)) if math.isfinite(value) else MISSING


def gap(curve: Curve) -> float:
    """Return (f1 - f2) / |f1|: how far the best leads, as a share of its own score."""
    if curve.count < 2:
        return MISSING
    lead = -float(curve.below[1])
    if curve.top == 0.0:
        return 0.0 if lead == 0.0 else MISSING
    return _clipped(lead / abs(curve.top))


def gap_tail(curve: Curve) -> float:
    """Return (f1 - f2) / sd of the tail: how far the best leads, in spreads of what is not relevant."""
    if curve.count < _LEAST_FOR_A_TAIL:
        return MISSING
    lead = -float(curve.below[1])
    return _clipped(lead / curve.scale) if lead > 0.0 else 0.0


def separation(curve: Curve) -> float:
    """Return (mean of the first three - median of the tail) / sd of the tail: how far the head stands off."""
    if curve.count < _LEAST_FOR_A_TAIL:
        return MISSING
    if curve.spread == 0.0:
        return 0.0
    below = curve.below
    head = (float(below[1]) + float(below[2])) / _HEAD
    return _clipped((head - curve.middle) / curve.scale)


def entropy(curve: Curve) -> float:
    """Return the entropy of softmax(f / sd of the tail) by ln n: 1 where no score stands out, 0 where one does."""
    if curve.count < _LEAST_FOR_A_TAIL:
        return MISSING
    if curve.spread == 0.0:
        return 1.0
    z = curve.below / curve.scale
    weights = np.exp(z)
    total = float(np.add.reduce(weights))
    nats = math.log(total) - float(np.dot(weights, z)) / total
    return min(1.0, max(0.0, nats / math.log(curve.count)))


def curvature(curve: Curve) -> float:
    """Return ((f1 - f10) - (f10 - f20)) / sd of the tail: positive where the curve falls faster at its head."""
    if curve.count < 20:
        return MISSING
    if curve.spread == 0.0:
        return 0.0
    return _clipped((float(curve.below[19]) - 2.0 * float(curve.below[9])) / curve.scale)


def nqc(curve: Curve) -> float:
    """Return sd of the first 100 / |mean of all|, the mean of the list standing in for the collection's score."""
    if curve.count < 2:
        return MISSING
    mean = curve.top + float(np.add.reduce(curve.below)) / curve.count
    first = curve.below[:_READ]
    centred = first - float(np.add.reduce(first)) / len(first)
    deviation = math.sqrt(float(np.dot(centred, centred)) / len(first))
    return _clipped(deviation / abs(mean)) if mean != 0.0 else MISSING


def wig(curve: Curve, query_tokens: float) -> float:
    """Return (mean of the first five - mean of all) / sqrt(query tokens), in the score's own unit."""
    if curve.count < 2:
        return MISSING
    first = curve.below[:5]
    lead = float(np.add.reduce(first)) / len(first) - float(np.add.reduce(curve.below)) / curve.count
    value = max(0.0, lead) / math.sqrt(query_tokens) / curve.unit
    return value if math.isfinite(value) else MISSING


def smv(curve: Curve) -> float:
    """Return mean(f |ln(f / mean)|) / mean over the first 100, of positive scores alone; missing below a mean of zero."""
    if curve.count < 2:
        return MISSING
    scores = curve.below[:_READ] + curve.top
    mean = curve.top + float(np.add.reduce(curve.below)) / curve.count
    if mean <= 0.0:
        return MISSING
    ratios = scores / mean
    ratios = ratios[ratios > 0.0]
    return _clipped(float(np.dot(ratios, np.abs(np.log(ratios)))) / len(scores))


def shape_exponential(curve: Curve) -> float:
    """Return the distance of the score curve to exp(-5 x): small where a few candidates carry the scores."""
    return _distance(curve, "exponential")


def shape_linear(curve: Curve) -> float:
    """Return the distance of the score curve to 1 - x: small where scores fall evenly."""
    return _distance(curve, "linear")


def shape_uniform(curve: Curve) -> float:
    """Return the distance of the score curve to 1: small where nearly all score like the best."""
    return _distance(curve, "uniform")


def _distance(curve: Curve, shape: str) -> float:
    """Root mean squared distance between a decay and the scores, both from 1 (best) to 0 (worst)."""
    if curve.count < _LEAST_FOR_A_TAIL:
        return MISSING
    reference = _decay(shape, curve.count)
    spread = curve.spread
    apart = (curve.below / spread if spread > 0.0 else curve.below) - reference
    return min(1.0, math.sqrt(float(np.dot(apart, apart)) / curve.count))


@lru_cache(maxsize=512)
def _decay(shape: str, count: int) -> FloatArray:
    """Return a decay over ``count`` ranks, minus 1: what a curve's ``below`` by its spread is compared with."""
    x = np.linspace(0.0, 1.0, count)
    match shape:
        case "exponential":
            falling = np.expm1(-_DECAY * x) / -math.expm1(-_DECAY)
        case "linear":
            falling = -x
        case _:
            falling = np.zeros(count)
    falling.flags.writeable = False
    return falling
