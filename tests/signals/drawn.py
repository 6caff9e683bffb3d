"""Scores and inputs as Hypothesis draws them for the tests of signals."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import strategies as st

from cascade.signals import SIGNALS, Family, Inputs, Signal
from cascade.signals.channel import FloatArray
from cascade.text import Text

__all__ = ["SHIFT_FREE", "any_scores", "array", "awkward", "exact_scores", "inputs_of", "names_of", "range_of"]

awkward = st.one_of(
    st.floats(-1e3, 1e3),
    st.sampled_from((0.0, -0.0, 1.0, math.nan, math.inf, -math.inf, 1e308, -1e308, 5e-324, 1e-300, 1e160, -1e160)),
)
"""One score: plain, missing, infinite, huge or tiny."""

any_scores = st.one_of(
    st.lists(awkward, max_size=3), st.lists(awkward, max_size=60), st.lists(st.floats(), max_size=30)
)
"""A channel's scores, none to sixty, with whatever a float can be."""

exact_scores = st.lists(st.integers(-(2**20), 2**20).map(lambda number: number / 1024.0), min_size=3, max_size=60)
"""Scores that stay exact when a whole number is added, or when they are multiplied by a power of two."""

SHIFT_FREE = [signal for signal in SIGNALS if "shift" not in signal.moves_with]


def array(scores: list[float]) -> FloatArray:
    """Return scores as signals take them."""
    return np.array(scores, dtype=np.float64)


def names_of(signal: Signal) -> list[str]:
    """Return the names under which a signal can be asked for, of channels a and b and the small stage."""
    match signal.family:
        case Family.CHANNEL:
            also = [] if signal.moves_with else ["small"]
            return [signal.name.replace("<channel>", scores) for scores in ("a", "b", *also)]
        case Family.PAIR:
            return [signal.name.replace("<a>.<b>", "a.b")]
        case Family.WHOLE:
            return [signal.name]


def range_of(name: str) -> tuple[float, float]:
    """Return the bounds that the table states for a name."""
    return next((signal.least, signal.most) for signal in SIGNALS if name in names_of(signal))


def inputs_of(a: list[float], b: list[float], small: list[float], noise_sd: float | None = 0.1) -> Inputs:
    """Return inputs with two channels, a small stage and a query."""
    return Inputs({"a": array(a), "b": array(b)}, Text("the query"), small=array(small), noise_sd=noise_sd)
