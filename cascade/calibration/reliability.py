"""Judge probabilities by what came true: Brier score, calibration error, and how small an error can be seen."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["Bin", "Reliability", "reliability"]

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Bin:
    """Predictions of about equal size: how many, their mean, and the share that came true."""

    count: int
    predicted: float
    observed: float


@dataclass(frozen=True, slots=True)
class Reliability:
    """How well probabilities hold.

    ``brier`` = ``reliability`` - ``resolution`` + ``uncertainty`` up to the spread inside bins (Murphy 1973).
    ``ece`` is the expected calibration error over bins of equal mass; ``ece_floor`` is what perfectly
    calibrated predictions would show on average with as many pairs, 0.8 sqrt(B mean(p (1 - p)) / n).
    Pairs of one query are not independent, so the true floor is higher.
    """

    count: int
    brier: float
    reliability: float
    resolution: float
    uncertainty: float
    ece: float
    ece_floor: float
    predicted: float
    observed: float
    bins: tuple[Bin, ...]


def reliability(p: FloatArray, came_true: npt.NDArray[np.bool_], bins: int = 15) -> Reliability:
    """Compare predictions ``p`` (n,) with outcomes (n,). n >= 1."""
    order = np.argsort(p, kind="stable")
    groups = [group for group in np.array_split(order, bins) if len(group)]
    outcome = came_true.astype(np.float64)
    rows = tuple(Bin(len(g), float(p[g].mean()), float(outcome[g].mean())) for g in groups)
    share = np.array([row.count for row in rows]) / len(p)
    predicted = np.array([row.predicted for row in rows])
    observed = np.array([row.observed for row in rows])
    base = float(outcome.mean())
    return Reliability(
        count=len(p),
        brier=float(((p - outcome) ** 2).mean()),
        reliability=float(share @ (predicted - observed) ** 2),
        resolution=float(share @ (observed - base) ** 2),
        uncertainty=base * (1.0 - base),
        ece=float(share @ np.abs(predicted - observed)),
        ece_floor=float(0.8 * np.sqrt(len(rows) * (p * (1.0 - p)).mean() / len(p))),
        predicted=float(p.mean()),
        observed=base,
        bins=rows,
    )
