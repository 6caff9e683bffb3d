"""Metrics of load levels."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge

from cascade.types import Decision, LevelReason

__all__ = ["LevelMetrics"]


class LevelMetrics:
    """Tell which level decides, how often that changed and for what, and how many answers each gave."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.level = Gauge(
            "cascade_level",
            "Load level that decides, by its place in the release; 0 is the release as it stands",
            registry=registry,
        )
        self.pinned = Gauge("cascade_level_pinned", "1 where an operator pinned the level", registry=registry)
        steps = Counter(
            "cascade_level_steps",
            "Changes of the load level by what they were for: wait, queue_age, misses, limit and breaker down, room up",
            ["why"],
            registry=registry,
        )
        self._steps = {why: steps.labels(why) for why in LevelReason}
        self._answers = Counter(
            "cascade_level_answers",
            "Answers by the level that decided, by its place in the release",
            ["level"],
            registry=registry,
        )
        self._by_level = {0: self._answers.labels("0")}
        self.beside_paused = Gauge(
            "cascade_beside_paused", "1 while load lets nothing be scored beside answers", registry=registry
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
