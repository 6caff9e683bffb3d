"""Whether traffic has moved from the queries that a calibration was fitted on."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import deque
from collections.abc import Mapping
from typing import Final

from cascade.calibration.artefact import Reference, ReferenceBins
from cascade.decision import Decision
from cascade.statistics.drift import index_of_shares

__all__ = ["LEAST_ANSWERS", "MOST_ANSWERS", "CalibrationDrift"]

LEAST_ANSWERS: Final = 200
"""With fewer the index is noise: of ten bins it is about 0.05 where nothing moved."""
MOST_ANSWERS: Final = 1000
_SMOOTHING: Final = 0.5


class _Window:
    """The bins of the last values."""

    def __init__(self, bins: ReferenceBins) -> None:
        self._bins = bins
        self._last: deque[int] = deque()
        self._counts = [0] * len(bins.shares)

    def add(self, value: float) -> None:
        place = bisect_left(self._bins.edges, value)
        self._last.append(place)
        self._counts[place] += 1
        if len(self._last) > MOST_ANSWERS:
            self._counts[self._last.popleft()] -= 1

    def told(self) -> tuple[float, int]:
        """Return the index against the reference, NaN where values are too few, and how many there are."""
        count = len(self._last)
        if count < LEAST_ANSWERS:
            return math.nan, count
        total = count + _SMOOTHING * len(self._counts)
        found = [(each + _SMOOTHING) / total for each in self._counts]
        return index_of_shares(self._bins.shares, found), count


class CalibrationDrift:
    """Hold the last answers against the queries that a calibration was fitted on, by the population stability index.

    Answers whose best small score is not known, of fewer candidates than the reference counts, are left out of ``score``,
    and those without a margin at the calibration's k out of ``margin``.
    """

    def __init__(self, reference: Reference, k: int) -> None:
        self._k = k
        self._score = _Window(reference.score)
        self._margin = _Window(reference.margin)

    def add(self, decision: Decision) -> None:
        """Take in an answer."""
        if decision.best_small is not None:
            self._score.add(decision.best_small)
        if decision.estimates is not None and decision.estimates.k == self._k:
            self._margin.add(decision.estimates.margin)

    def told(self) -> Mapping[str, tuple[float, int]]:
        """Return the index of each, and the answers that it is of."""
        return {"score": self._score.told(), "margin": self._margin.told()}
