"""Means over queries with their intervals, many at once."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from cascade.replay.columns import FloatArray
from cascade.replay.intervals import Figure, Resamples, figure

__all__ = ["mean_figures"]


def mean_figures(values: Mapping[str, FloatArray], drawn: Resamples) -> dict[str, Figure]:
    """Return the mean of each of the values (Q,), all on the same resamples."""
    draws = drawn.means(np.stack([*values.values()]))
    return {name: figure(draws[:, at], drawn.queries, "not told for every query") for at, name in enumerate(values)}
