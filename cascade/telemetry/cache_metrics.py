"""Metrics of the score cache."""

from __future__ import annotations

from typing import Final

from cascade.telemetry.declared import EXPERIMENTAL, SECONDS, STABLE, Declaring
from cascade.types import SCORING, Arm, StageName

__all__ = ["CacheMetrics"]

_OUTCOMES: Final = ("hit", "shared", "miss", "fault")
_LOST: Final = ("room", "age")
_DROPPED: Final = ("queue", "fault")
_SECONDS: Final = tuple(each for each in SECONDS if each <= 1.0)


class CacheMetrics:
    """Count what rounds find; gauges are set when metrics are read."""

    def __init__(self, declare: Declaring) -> None:
        lookups = declare.counter(
            STABLE,
            "cascade_cache_lookups",
            "Documents of rounds by stage, arm and whether their score was kept: hit; shared, scored by a round that was "
            "under way already; miss; fault, where the store could not tell, which is a miss",
            ["stage", "arm", "outcome"],
        )
        self._lookups = {(s, a, o): lookups.labels(s, a, o) for s in SCORING for a in Arm for o in _OUTCOMES}
        self.followed = declare.histogram(
            EXPERIMENTAL,
            "cascade_cache_shared_wait_seconds",
            "Time that a round waited for another that scored the same pairs",
            buckets=_SECONDS,
        )
        self._lost = declare.counters(
            EXPERIMENTAL,
            "cascade_cache_evictions",
            "Scores in memory that are kept no longer: for want of room, or too old",
            "why",
            _LOST,
        )
        self._dropped = declare.counters(
            EXPERIMENTAL,
            "cascade_cache_write_drops",
            "Scores that were not written to the Redis: too many were waiting, or it failed",
            "why",
            _DROPPED,
        )
        self.scores = declare.gauge(EXPERIMENTAL, "cascade_cache_scores", "Scores kept in memory")
        self.bytes = declare.gauge(EXPERIMENTAL, "cascade_cache_bytes", "Memory that they count for, in bytes")
        self.breaker_open = declare.gauge(
            STABLE, "cascade_cache_breaker_open", "1 where the Redis is not asked, since it failed of late"
        )

    def looked(self, stage: StageName, arm: Arm, *, hits: int, shared: int, misses: int, faults: int) -> None:
        """Count the documents of a round."""
        for outcome, count in zip(_OUTCOMES, (hits, shared, misses, faults), strict=True):
            if count:
                self._lookups[stage, arm, outcome].inc(count)

    def lost(self, why: str, count: int) -> None:
        """Count scores that are kept no longer."""
        self._lost[why].inc(count)

    def dropped(self, why: str, count: int) -> None:
        """Count scores that were not written."""
        self._dropped[why].inc(count)
