"""Sweeps of stated numbers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cascade.replay.sweep import Metric, Sweep

__all__ = ["sweep"]


def sweep(name: str, quality: Sequence[Sequence[float]], pairs: Sequence[Sequence[float]]) -> Sweep:
    """Return a sweep of quality and pairs (S, Q), whose settings are its rows' numbers."""
    values = np.array(quality, dtype=np.float64)
    sent = np.array(pairs, dtype=np.float64)
    settings = tuple(float(row) for row in range(len(values)))
    metrics = {Metric.NDCG: values}
    return Sweep(
        name, settings, values, sent, None, metrics, np.ones_like(values), np.ones(values.shape, dtype=np.bool_)
    )
