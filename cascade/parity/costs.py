"""What a side costs: milliseconds a pair, and memory of a model that runs here."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

__all__ = ["Milliseconds", "Speed", "milliseconds", "resident_bytes", "speed"]

_STATM: Final = Path("/proc/self/statm")


@dataclass(frozen=True, slots=True)
class Milliseconds:
    """Milliseconds a pair over calls of one query each, one call at a time."""

    mean: float
    p50: float
    p95: float
    calls: int


@dataclass(frozen=True, slots=True)
class Speed:
    """How many times faster CAND is: the median over queries of REF's time over CAND's, and the quartiles."""

    median: float
    low: float
    high: float
    queries: int


def milliseconds(per_pair: Mapping[str, float]) -> Milliseconds | None:
    """Return what the calls took, by query, None where none was timed."""
    if not per_pair:
        return None
    taken = list(per_pair.values())
    p50, p95 = np.quantile(taken, (0.5, 0.95)).tolist()
    return Milliseconds(float(np.mean(taken)), p50, p95, len(taken))


def speed(ref: Mapping[str, float], cand: Mapping[str, float]) -> Speed | None:
    """Return how many times faster CAND is on the queries that both were timed on, None where there are none."""
    ratios = [ref[name] / cand[name] for name in ref if cand.get(name, 0.0) > 0.0]
    if not ratios:
        return None
    low, median, high = np.quantile(ratios, (0.25, 0.5, 0.75)).tolist()
    return Speed(median, low, high, len(ratios))


def resident_bytes(statm: Path = _STATM) -> int | None:
    """Return the resident memory of this process, None on a system that does not tell it so."""
    try:
        return int(statm.read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return None
