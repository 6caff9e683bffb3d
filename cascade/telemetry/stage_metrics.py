"""Metrics of rounds: what stages were asked for, what it cost, and how long each part took."""

from __future__ import annotations

from typing import Final

from cascade.decision import DegradedReason, Round
from cascade.telemetry.declared import EXPERIMENTAL, SECONDS, STABLE, Declaring
from cascade.types import SCORING

__all__ = ["OUTCOMES", "StageMetrics"]

OUTCOMES: Final = ("ok", *DegradedReason)


class StageMetrics:
    """Count and time rounds."""

    def __init__(self, declare: Declaring) -> None:
        rounds = declare.counter(STABLE, "cascade_rounds", "Rounds by stage and outcome", ["stage", "outcome"])
        self._rounds = {(s, o): rounds.labels(s, o) for s in SCORING for o in OUTCOMES}
        self._pairs = declare.counters(
            STABLE, "cascade_pairs", "Pairs scored by stage, without those from the cache", "stage", SCORING
        )
        self._tokens = declare.counters(
            STABLE, "cascade_tokens", "Tokens by stage, estimated where the server does not tell", "stage", SCORING
        )
        self._truncated = declare.counters(
            STABLE, "cascade_truncated_pairs", "Pairs not read in full", "stage", SCORING
        )
        self._windows = declare.counters(
            STABLE,
            "cascade_windows",
            "Windows of long documents scored beyond the first of each pair, by embedded stages",
            "stage",
            SCORING,
        )
        self._padding = declare.counters(
            EXPERIMENTAL,
            "cascade_padding_tokens",
            "Tokens that filled up batches of embedded stages, beside cascade_tokens",
            "stage",
            SCORING,
        )
        self._repaired = declare.counter(
            EXPERIMENTAL,
            "cascade_order_repairs",
            "What had to be mended of orders of a listwise stage: numbers dropped, and documents that were not named",
        )
        self._prefix_tokens = declare.counter(
            EXPERIMENTAL,
            "cascade_prefix_tokens",
            "Tokens, of cascade_tokens, that a listwise stage's server says it had in its prefix cache",
        )
        excluded = declare.counter(
            STABLE, "cascade_excluded_documents", "Documents left out of a stage", ["stage", "why"]
        )
        self._excluded = {(s, why): excluded.labels(s, why) for s in SCORING for why in ("blank", "refused")}
        self._seconds = declare.histograms(
            STABLE, "cascade_stage_seconds", "Time of a round", "stage", SCORING, buckets=SECONDS
        )
        queue = declare.histograms(
            EXPERIMENTAL,
            "cascade_stage_queue_seconds",
            "Time that a round waited at its server, by its longest call, where that tells, or for this machine's cores; "
            "of one that timed out there too",
            "stage",
            SCORING,
            buckets=SECONDS,
        )
        room = declare.histograms(
            EXPERIMENTAL,
            "cascade_stage_room_seconds",
            "Time that a round waited here for room among the texts in flight at its server, where it had to; of one that failed too",
            "stage",
            SCORING,
            buckets=SECONDS,
        )
        compute = declare.histograms(
            EXPERIMENTAL,
            "cascade_stage_compute_seconds",
            "Time that a round was computed, where the server tells, or on this machine's cores",
            "stage",
            SCORING,
            buckets=SECONDS,
        )
        self._queue, self._room = queue, room
        self._parts = (("queue_ms", queue), ("room_ms", room), ("compute_ms", compute))

    def observe(self, item: Round) -> None:
        """Count a round."""
        self._rounds[item.stage, item.outcome].inc()
        waits = ((self._queue, item.queue_ms), (self._room, item.room_ms))
        waited = [(histograms, ms) for histograms, ms in waits if ms is not None]
        if item.left or waited:  # else it took no time, and would make the stage look fast
            self._seconds[item.stage].observe(item.elapsed_ms / 1000)
        for histograms, ms in waited:
            histograms[item.stage].observe(ms / 1000)
        cost = item.cost
        if cost is None:
            return
        self._pairs[item.stage].inc(item.pairs)
        self._tokens[item.stage].inc(cost.tokens)
        for counter, count in (
            (self._truncated[item.stage], cost.truncated),
            (self._windows[item.stage], cost.windows),
            (self._padding[item.stage], cost.padding),
            (self._repaired, cost.repaired),
            (self._prefix_tokens, cost.prefix_tokens),
            (self._excluded[item.stage, "blank"], item.blank),
            (self._excluded[item.stage, "refused"], item.refused),
        ):
            if count:  # most are 0, and adding nothing costs as much as adding
                counter.inc(count)
        for name, histograms in self._parts:
            milliseconds: float | None = getattr(cost, name)
            if item.left and milliseconds is not None:
                histograms[item.stage].observe(milliseconds / 1000)
