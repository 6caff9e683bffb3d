"""Find how CAND's scores are made of REF's: what no ranking metric sees, such as a sigmoid applied twice."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import numpy as np

from cascade.parity.lists import FloatArray
from cascade.parity.spaces import Spaces, logit, sigmoid
from cascade.types import ScoreSpace

__all__ = ["Fit", "Relation", "ScoreRange", "SpaceCheck", "check_space"]

_LEAST_PAIRS: Final = 10
_TRIMMED: Final = 0.1
"""Share of the worst residuals that a fit does not count, so that a broken slice does not hide the relation."""
_SAME_ENOUGH: Final = 0.005
_SAME_AT_MOST: Final = 0.15
_OTHERS_AT_MOST: Final = 0.05
_CLEARLY: Final = 1.5
_TWICE: Final = (0.4999, 0.7312)
"""Where a probability lands that goes through a sigmoid again: sigmoid(0) to sigmoid(1)."""


class Relation(StrEnum):
    """How CAND's score y follows from REF's score x, the simplest first."""

    SAME = "y = x"
    SIGMOID = "y = sigmoid(x)"
    LOGIT = "y = logit(x)"
    DOUBLE_SIGMOID = "y = sigmoid(sigmoid(x))"
    DOUBLE_LOGIT = "y = logit(logit(x))"
    AFFINE = "y = a x + b"
    AFFINE_SIGMOID = "y = sigmoid(a x + b)"
    AFFINE_LOGIT = "logit(y) = a logit(x) + b"
    NONE = "none of these"


@dataclass(frozen=True, slots=True)
class Fit:
    """One relation: root mean square residual over CAND's standard deviation, of the best 90% of the pairs."""

    residual: float
    slope: float | None = None
    intercept: float | None = None


@dataclass(frozen=True, slots=True)
class ScoreRange:
    """Least and greatest raw score of a side."""

    least: float
    most: float


@dataclass(frozen=True, slots=True)
class SpaceCheck:
    """What was found. ``right`` is None where nothing could be told; ``statements`` say what is wrong in words."""

    relation: Relation | None
    expected: Relation
    right: bool | None
    statements: tuple[str, ...]
    ref: ScoreRange | None
    cand: ScoreRange | None
    fits: Mapping[Relation, Fit]


def check_space(ref: FloatArray, cand: FloatArray, spaces: Spaces) -> SpaceCheck:
    """Hold the raw scores of the same pairs against every relation, and against the declared spaces.

    A relation without a parameter is preferred to one that is fitted: it is taken unless another one is clearly
    better. Ranges are judged without the other side, so that two sides with the same fault are seen too.
    """
    expected = _expected(spaces)
    if spaces.ranks or not ref.size:
        return SpaceCheck(None, expected, None, (), None, None, {})
    ranges = tuple(ScoreRange(float(values.min()), float(values.max())) for values in (ref, cand))
    faults = [*_range_faults("REF", ref, spaces.ref), *_range_faults("CAND", cand, spaces.cand)]
    fits = _fits(ref, cand)
    relation = _chosen(fits)
    if relation is not None:
        faults += _said(relation, expected, spaces, ranges, fits.get(relation))
    decided = relation is not None and relation is not Relation.NONE
    right = False if faults else True if decided else None
    if not decided:
        faults.append(_untold(ref, cand))
    return SpaceCheck(relation, expected, right, tuple(faults), ranges[0], ranges[1], fits)


def _expected(spaces: Spaces) -> Relation:
    if not spaces.mixed:
        return Relation.SAME
    return Relation.SIGMOID if spaces.ref is ScoreSpace.LOGIT else Relation.LOGIT


def _range_faults(name: str, values: FloatArray, declared: ScoreSpace | None) -> list[str]:
    if values.size < _LEAST_PAIRS or not np.ptp(values):
        return []
    least, most = float(values.min()), float(values.max())
    if declared in (ScoreSpace.PROBABILITY, ScoreSpace.LOGIT) and least >= _TWICE[0] and most <= _TWICE[1]:
        return [f"{name} looks like sigmoid(sigmoid(logit)): every score lies between 0.5 and 0.731"]
    if declared is ScoreSpace.PROBABILITY and (least < 0.0 or most > 1.0):
        return [f"{name} is declared as probability and has scores outside 0 to 1"]
    if declared is ScoreSpace.COSINE and (least < -1.001 or most > 1.001):
        return [f"{name} is declared as cosine and has scores outside -1 to 1"]
    return []


def _fits(x: FloatArray, y: FloatArray) -> dict[Relation, Fit]:
    """Return how well each relation holds that is defined on enough pairs."""
    if x.size < _LEAST_PAIRS or not np.ptp(x) or not np.ptp(y):
        return {}
    maps: dict[Relation, Callable[[FloatArray], FloatArray]] = {
        Relation.SAME: lambda values: values,
        Relation.SIGMOID: sigmoid,
        Relation.LOGIT: logit,
        Relation.DOUBLE_SIGMOID: lambda values: sigmoid(sigmoid(values)),
        Relation.DOUBLE_LOGIT: lambda values: logit(logit(values)),
    }
    fits: dict[Relation, Fit] = {}
    for relation, apply in maps.items():
        if (found := _residual(apply(x), y)) is not None:
            fits[relation] = Fit(found)
    lines: tuple[tuple[Relation, FloatArray, FloatArray, Callable[[FloatArray], FloatArray]], ...] = (
        (Relation.AFFINE, x, y, lambda values: values),
        (Relation.AFFINE_SIGMOID, x, logit(y), sigmoid),
        (Relation.AFFINE_LOGIT, logit(x), logit(y), sigmoid),
    )
    for relation, across, along, back in lines:
        line = _line(across, along)
        if line is not None and (found := _residual(back(line[0] * across + line[1]), y)) is not None:
            fits[relation] = Fit(found, *line)
    return fits


def _residual(predicted: FloatArray, y: FloatArray) -> float | None:
    """Return the trimmed root mean square residual over the deviation of y, None where too few are predicted."""
    known = np.isfinite(predicted)
    if known.sum() < max(_LEAST_PAIRS, (1.0 - _TRIMMED) * y.size):
        return None
    squares = np.sort((predicted[known] - y[known]) ** 2)
    return float(np.sqrt(squares[: _kept(squares.size)].mean()) / y[known].std()) if np.ptp(y[known]) else None


def _line(x: FloatArray, y: FloatArray) -> tuple[float, float] | None:
    """Return slope and intercept by least squares over the pairs that fit best."""
    known = np.isfinite(x) & np.isfinite(y)
    if known.sum() < max(_LEAST_PAIRS, (1.0 - _TRIMMED) * x.size):
        return None
    x, y = x[known], y[known]
    chosen = np.arange(x.size)
    slope = intercept = 0.0
    for _ in range(4):
        if not np.ptp(x[chosen]):
            return None
        spread = x[chosen] - x[chosen].mean()
        slope = float(spread @ y[chosen] / (spread @ spread))
        intercept = float(y[chosen].mean() - slope * x[chosen].mean())
        chosen = np.argsort(np.abs(slope * x + intercept - y), kind="stable")[: _kept(x.size)]
    return slope, intercept


def _kept(count: int) -> int:
    return count - int(count * _TRIMMED)


def _chosen(fits: Mapping[Relation, Fit]) -> Relation | None:
    """Return the simplest relation that holds and that no other one is clearly better than."""
    if not fits:
        return None
    best = min(fit.residual for fit in fits.values())
    for relation, fit in fits.items():
        most = _SAME_AT_MOST if relation is Relation.SAME else _OTHERS_AT_MOST
        if fit.residual <= most and fit.residual <= max(_SAME_ENOUGH, _CLEARLY * best):
            return relation
    return Relation.NONE


def _said(
    relation: Relation, expected: Relation, spaces: Spaces, ranges: tuple[ScoreRange, ...], fit: Fit | None
) -> list[str]:
    """Return what a relation other than the expected one means, in words."""
    if relation in (expected, Relation.NONE):
        return []
    ref_is_probability = spaces.ref is ScoreSpace.PROBABILITY or (spaces.ref is None and _within(ranges[0], 0.0, 1.0))
    cand_is_probability = spaces.cand is ScoreSpace.PROBABILITY or (
        spaces.cand is None and _within(ranges[1], 0.0, 1.0)
    )
    match relation:
        case Relation.SAME:
            told = f"CAND is REF, although REF is declared as {spaces.ref} and CAND as {spaces.cand}"
        case Relation.SIGMOID if ref_is_probability:
            told = "CAND looks like sigmoid(sigmoid(logit)): it is the sigmoid of REF, which is a probability already"
        case Relation.SIGMOID:
            told = "CAND looks like sigmoid(REF): REF answers logits and CAND probabilities"
        case Relation.LOGIT if cand_is_probability:
            told = "REF looks like sigmoid(sigmoid(logit)): it is the sigmoid of CAND, which is a probability already"
        case Relation.LOGIT:
            told = "CAND looks like logit(REF): REF answers probabilities and CAND logits"
        case Relation.DOUBLE_SIGMOID:
            told = "CAND looks like sigmoid(sigmoid(logit)), of the logits that REF answers"
        case Relation.DOUBLE_LOGIT:
            told = "REF looks like sigmoid(sigmoid(logit)), of the logits that CAND answers"
        case _:
            told = f"CAND looks rescaled: {_line_told(relation, fit)}"
    return [told]


def _line_told(relation: Relation, fit: Fit | None) -> str:
    slope, intercept = (fit.slope, fit.intercept) if fit is not None else (None, None)
    turned = ", which turns the order round" if slope is not None and slope < 0.0 else ""
    return f"{relation} with a = {slope:.4g} and b = {intercept:.4g}{turned}"


def _within(found: ScoreRange, least: float, most: float) -> bool:
    return found.least >= least and found.most <= most


def _untold(ref: FloatArray, cand: FloatArray) -> str:
    if ref.size < _LEAST_PAIRS:
        return f"fewer than {_LEAST_PAIRS} pairs: their relation cannot be told"
    for name, values in (("REF", ref), ("CAND", cand)):
        if not np.ptp(values):
            return f"{name} scores everything alike"
    return "CAND is no known function of REF: another model, or scores that are broken"
