"""Rank flips by the margin of the reference: which orders of two candidates a candidate stage turns round."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from cascade.parity.pairs import PairedList

__all__ = ["LARGE_MARGIN", "Bucket", "flips", "large_flips"]

_EDGES: Final = (0.0, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, np.inf)
LARGE_MARGIN: Final = 0.5
"""Margin, in standard deviations of REF's scores within a query, from which a flip is alarming."""


@dataclass(frozen=True, slots=True)
class Bucket:
    """Comparisons of two candidates of a query whose REF margin lies in (low, high], in REF's own units.

    ``low_sd`` and ``high_sd`` are the same in standard deviations within a query; ``high`` None has no end.
    """

    low: float
    high: float | None
    low_sd: float
    high_sd: float | None
    comparisons: int
    flipped: int
    tied: int


def flips(lists: Sequence[PairedList]) -> list[Bucket]:
    """Count, by REF's margin, the pairs of candidates that CAND orders the other way or ties. Empty without a margin."""
    centred = np.concatenate([item.ref - item.ref.mean() for item in lists]) if lists else np.zeros(0)
    sd = float(np.sqrt(np.mean(centred**2))) if centred.size else 0.0
    if not sd:
        return []
    counts = np.zeros((3, len(_EDGES) - 1), dtype=np.int64)
    for item in lists:
        first, second = np.triu_indices(item.ref.size, 1)
        margin = item.ref[first] - item.ref[second]
        ordered = np.sign(margin) * np.sign(item.cand[first] - item.cand[second])
        places = np.searchsorted(_EDGES, np.abs(margin) / sd, side="left") - 1
        for row, which in enumerate((margin != 0, (margin != 0) & (ordered < 0), (margin != 0) & (ordered == 0))):
            counts[row] += np.bincount(places[which], minlength=len(_EDGES) - 1)
    return [
        Bucket(
            low=low * sd,
            high=high * sd if np.isfinite(high) else None,
            low_sd=low,
            high_sd=high if np.isfinite(high) else None,
            comparisons=int(counts[0, place]),
            flipped=int(counts[1, place]),
            tied=int(counts[2, place]),
        )
        for place, (low, high) in enumerate(itertools.pairwise(_EDGES))
    ]


def large_flips(buckets: Sequence[Bucket]) -> float | None:
    """Return the share of comparisons at large margins that are flipped, None where there are none."""
    large = [bucket for bucket in buckets if bucket.low_sd >= LARGE_MARGIN]
    compared = sum(bucket.comparisons for bucket in large)
    return sum(bucket.flipped for bucket in large) / compared if compared else None
