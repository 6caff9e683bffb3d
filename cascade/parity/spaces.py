"""Bring raw scores of two declared spaces into one that they can be subtracted in."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cascade.parity.lists import FloatArray
from cascade.types import ScoreSpace

__all__ = ["Spaces", "logit", "sigmoid"]


@dataclass(frozen=True, slots=True)
class Spaces:
    """The declared space of each side, None where nobody says. ``ranks`` tells that a side holds ranks, not scores."""

    ref: ScoreSpace | None
    cand: ScoreSpace | None
    ranks: bool = False

    @property
    def mixed(self) -> bool:
        """Tell whether one side answers logits and the other probabilities."""
        return {self.ref, self.cand} == {ScoreSpace.LOGIT, ScoreSpace.PROBABILITY}

    @property
    def common(self) -> ScoreSpace | None:
        """Return the space that errors are told in: that of both sides, None where it is not known."""
        if self.mixed:
            return ScoreSpace.PROBABILITY
        return self.ref if self.cand in (None, self.ref) else self.cand if self.ref is None else None

    @property
    def incomparable(self) -> str | None:
        """Return why scores cannot be subtracted, None where they can."""
        if self.ranks:
            return "a side holds ranks, not scores"
        if self.mixed or None in (self.ref, self.cand) or self.ref is self.cand:
            return None
        return f"REF is declared as {self.ref}, CAND as {self.cand}"

    def in_common(self, values: FloatArray, own: ScoreSpace | None) -> FloatArray:
        """Return the scores of a side of space ``own`` in the common one: logits become probabilities where mixed."""
        return sigmoid(values) if self.mixed and own is ScoreSpace.LOGIT else values


def sigmoid(values: FloatArray) -> FloatArray:
    """Return 1 / (1 + exp(-x)), NaN for NaN, without overflow."""
    small = np.exp(-np.abs(values))
    return np.where(values >= 0, 1.0 / (1.0 + small), small / (1.0 + small))


def logit(values: FloatArray) -> FloatArray:
    """Return log(p / (1 - p)), NaN outside of the open unit interval."""
    inside = (values > 0.0) & (values < 1.0)
    kept = np.where(inside, values, 0.5)
    return np.where(inside, np.log(kept) - np.log1p(-kept), np.nan)
