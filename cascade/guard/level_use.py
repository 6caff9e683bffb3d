"""Learn what levels cost, and foretell how busy the stages would be at one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from cascade.guard.queue_pressure import LevelBound, QueuePressure, StagePressure
from cascade.types import SCORING, StageName

__all__ = ["LevelUse"]

_SMOOTH_S: Final = 2.0
"""Time constant of rates and shares: a few hundred requests at usual loads."""
_SHORTEST_S: Final = 1e-6
"""A look after less than this tells of no rate: what came in no time would be infinitely many a second."""
_REMEMBERED: Final = 1000
"""Requests by which a level's cost is known; older ones count less and less."""


@dataclass(slots=True)
class _StageUse:
    """A stage: pairs it scores a second, its share busy, and the share of it that one pair a second takes.

    ``share_age_s`` is for how long that share could not be measured anew, since the stage scored next to nothing.
    ``full`` is that share as it was when the stage had all it could do, at ``full_at``.
    """

    rate: float = 0.0
    busy: float | None = None
    share: float | None = None
    share_age_s: float = 0.0
    full: float = 0.0
    full_at: float = -math.inf


class LevelUse:
    """Know the load and what it takes of the stages, from one look to the next."""

    def __init__(self, bounds: Sequence[LevelBound]) -> None:
        self._bounds = bounds
        self._work: list[tuple[float, float, float]] = [(0.0, 0.0, 0.0) for _ in bounds]
        self._stages = {name: _StageUse() for name in SCORING}
        self._arrivals = 0.0

    def learn(self, elapsed_s: float, pressure: QueuePressure) -> None:
        """Take in a look that spans ``elapsed_s``."""
        for level, done in pressure.work.items():
            requests, small, large = self._work[level]
            kept = 0.5 if requests > _REMEMBERED else 1.0
            self._work[level] = (
                requests * kept + done.requests,
                small * kept + done.small_pairs,
                large * kept + done.large_pairs,
            )
        if elapsed_s < _SHORTEST_S:
            return
        weight = 1 - math.exp(-elapsed_s / _SMOOTH_S)
        self._arrivals += weight * (pressure.arrivals / elapsed_s - self._arrivals)
        for name, told in pressure.stages:
            self._learn_stage(self._stages[name], told, elapsed_s, weight)

    @staticmethod
    def _learn_stage(stage: _StageUse, told: StagePressure, elapsed_s: float, weight: float) -> None:
        stage.rate += weight * (told.scored / elapsed_s - stage.rate)
        busy = told.busy_share
        if busy is None:
            return
        stage.busy = busy if stage.busy is None else stage.busy + weight * (busy - stage.busy)
        stage.share_age_s += elapsed_s
        if stage.rate > 1.0:
            stage.share, stage.share_age_s = stage.busy / stage.rate, 0.0

    def is_full(self, name: StageName, now: float) -> None:
        """Hold that a stage has all it can do: what it scores now is what there is of it."""
        stage = self._stages[name]
        if stage.rate > 0:
            stage.full, stage.full_at = 1 / stage.rate, now

    def forget(self, name: StageName) -> None:
        """Forget what a stage took: nobody asks it, and it was ill when it was asked last."""
        self._stages[name] = _StageUse(busy=0.0)

    def forecast(self, level: int, now: float, remembered_s: float) -> float:
        """Return how busy the busier stage would be at ``level`` under the load of the moment; 0 where nothing tells.

        The share that a pair a second takes of a stage is measured from what is in flight of its bound, and where
        the stage has been full within ``remembered_s``, at least what it was then: a bound above what a server can
        do makes it look idle. A share that was measured longer ago than that is forgotten: the stage may have been ill
        then, and where no request is sent to it nothing else would ever tell. With one stage in use it is
        busy(now) cost(level) / cost(now).
        """
        return max(self._at_stage(name, level, now, remembered_s) for name in SCORING)

    def _at_stage(self, name: StageName, level: int, now: float, remembered_s: float) -> float:
        pairs = self._pairs(level, name)
        stage = self._stages[name]
        share = (stage.share or 0.0) if stage.share_age_s <= remembered_s else 0.0
        if now - stage.full_at <= remembered_s:
            share = max(share, stage.full)
        return share * pairs * self._arrivals

    def _pairs(self, level: int, name: StageName) -> float:
        """Return the pairs of a request at a stage: as learnt while served, else the most that its rules allow."""
        requests, small, large = self._work[level]
        if requests < 1:
            return self._bounds[level].of(name)
        return (large if name is StageName.LARGE else small) / requests
