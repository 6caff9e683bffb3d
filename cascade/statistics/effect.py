"""How large a paired difference is: what a p-value does not say, since with enough queries anything is significant."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from cascade.statistics.sample import finite

__all__ = ["Effect", "effect"]

_EQUAL: Final = 1e-12
"""Two qualities as near as this are the same order of documents, added up differently."""


@dataclass(frozen=True, slots=True)
class Effect:
    """Size of a difference: the standardised mean, and the share of queries on each side.

    ``size`` is None where differences do not vary, or are fewer than three: there is no scale to put them on.
    """

    size: float | None
    better: float
    worse: float
    equal: float


def effect(differences: npt.ArrayLike) -> Effect:
    """Return the effect in paired differences (n,).

    ``size`` is d_z, mean over standard deviation of the differences, times Hedges' correction for few
    of them, G((n-1)/2) / (sqrt((n-1)/2) G((n-2)/2)) with G the gamma function (Hedges 1981).
    Raises ConfigError for NaN, infinite or no differences.
    """
    found = finite("differences", differences)
    count = found.size
    spread = float(found.std(ddof=1)) if count > 2 else 0.0
    return Effect(
        size=_hedges(count) * float(found.mean()) / spread if spread > _EQUAL else None,
        better=float(np.mean(found > _EQUAL)),
        worse=float(np.mean(found < -_EQUAL)),
        equal=float(np.mean(np.abs(found) <= _EQUAL)),
    )


def _hedges(count: int) -> float:
    free = count - 1
    return math.exp(math.lgamma(free / 2) - math.lgamma((free - 1) / 2)) / math.sqrt(free / 2)
