"""Metrics of load levels."""

from __future__ import annotations

from cascade.decision import Decision
from cascade.telemetry.declared import EXPERIMENTAL, STABLE, Declaring
from cascade.types import LevelReason

__all__ = ["LevelMetrics"]


class LevelMetrics:
    """Tell which level decides, how often that changed and for what, and how many answers each gave."""

    def __init__(self, declare: Declaring) -> None:
        self.level = declare.gauge(
            STABLE,
            "cascade_level",
            "Load level that decides, by its place in the release; 0 is the release as it stands",
        )
        self.pinned = declare.gauge(STABLE, "cascade_level_pinned", "1 where an operator pinned the level")
        self._steps = declare.counters(
            STABLE,
            "cascade_level_steps",
            "Changes of the load level by what they were for: wait, queue_age, misses, limit and breaker down, room up",
            "why",
            LevelReason,
        )
        self._answers = declare.counter(
            STABLE, "cascade_level_answers", "Answers by the level that decided, by its place in the release", ["level"]
        )
        self._by_level = {0: self._answers.labels("0")}
        self.beside_paused = declare.gauge(
            EXPERIMENTAL, "cascade_beside_paused", "1 while load lets nothing be scored beside answers"
        )

    def step(self, why: LevelReason) -> None:
        """Count a change of the level."""
        self._steps[why].inc()

    def answered(self, decision: Decision) -> None:
        """Count an answer."""
        level = decision.level.index
        counter = self._by_level.get(level)
        if counter is None:
            counter = self._by_level[level] = self._answers.labels(str(level))
        counter.inc()
