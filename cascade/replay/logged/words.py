"""Figures as a report holds them: finite numbers of nine digits, with intervals and reasons beside them."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from cascade.replay.columns import FloatArray
from cascade.replay.intervals import Figure, figure, undefined
from cascade.replay.logged.estimate import Bootstrap, numbered
from cascade.replay.report import split
from cascade.statistics.off_policy import mean_of

__all__ = ["figures_told", "means_told", "number"]


def number(value: float) -> float | None:
    """Return a number to nine digits, None for one that is not finite."""
    return float(f"{float(value):.9g}") if math.isfinite(value) else None


def figures_told(
    figures: Mapping[str, Figure], refused: str | None = None, keep: Collection[str] = ()
) -> dict[str, Any]:
    """Return the values by name with their ``intervals`` and ``reasons``.

    Where ``refused`` says why, no figure is told but those to ``keep``.
    """
    shown = {name: found if refused is None or name in keep else undefined(refused) for name, found in figures.items()}
    return split(shown)


def means_told(
    columns: Mapping[str, Sequence[float] | FloatArray], queries: Sequence[str], resamples: int, seed: int
) -> dict[str, Any]:
    """Return the mean of each column over its records, with intervals over queries, and how many of both there are."""
    bootstrap = Bootstrap(numbered(queries), resamples, seed)
    arrays = {name: np.array(values, dtype=np.float64) for name, values in columns.items()}
    draws = bootstrap.draws(*(partial(mean_of, values) for values in arrays.values()))
    figures = {name: figure(draw, bootstrap.count, "no record") for name, draw in zip(arrays, draws, strict=True)}
    return {"records": len(queries), "queries": bootstrap.count, **figures_told(figures)}
