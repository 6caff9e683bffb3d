"""Score lists drawn for property tests: few different values, and every sum of them exact."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st

__all__ = ["Lists", "lists", "score_lists"]

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Lists:
    """The scores of one query in first-stage order, NaN where missing, and those of two channels."""

    small: FloatArray
    channels: dict[str, FloatArray]


def score_lists(count: int) -> st.SearchStrategy[FloatArray]:
    """Draw ``count`` scores, multiples of 1/8 or missing, so that ties are common and shifts are exact."""
    scores = st.none() | st.integers(-64, 64)
    drawn = st.lists(scores, min_size=count, max_size=count)
    return drawn.map(lambda each: np.array([np.nan if score is None else score / 8 for score in each]))


@st.composite
def lists(draw: st.DrawFn) -> Lists:
    """Draw one query of up to 40 candidates; any scorer may have scored none of them."""
    count = draw(st.integers(1, 40))
    bm25, dense = (draw(score_lists(count)) for _ in range(2))
    return Lists(draw(score_lists(count)), {"bm25": bm25, "dense": dense})
