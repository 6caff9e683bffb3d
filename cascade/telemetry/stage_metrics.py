"""Metrics of rounds: what stages were asked for, what it cost, and how long each part took."""

from __future__ import annotations

from typing import Final

from cascade.telemetry.declared import EXPERIMENTAL, STABLE, Declaring
from cascade.types import DegradedReason, Round, StageName

__all__ = ["OUTCOMES", "SECONDS", "StageMetrics"]

SECONDS: Final = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
OUTCOMES: Final = ("ok", *DegradedReason)


class StageMetrics:
    """Count and time rounds. Children are made once: looking a label up costs more than counting."""

    def __init__(self, declare: Declaring) -> None:
        stages = (StageName.SMALL, StageName.LARGE)
        rounds = declare.counter(STABLE, "cascade_rounds", "Rounds by stage and outcome", ["stage", "outcome"])
        self._rounds = {(s, o): rounds.labels(s, o) for s in stages for o in OUTCOMES}
        pairs = declare.counter(
            STABLE, "cascade_pairs", "Pairs scored by stage, without those from the cache", ["stage"]
        )
        self._pairs = {s: pairs.labels(s) for s in stages}
        tokens = declare.counter(
            STABLE, "cascade_tokens", "Tokens by stage, estimated where the server does not tell", ["stage"]
        )
        self._tokens = {s: tokens.labels(s) for s in stages}
        truncated = declare.counter(STABLE, "cascade_truncated_pairs", "Pairs not read in full", ["stage"])
        self._truncated = {s: truncated.labels(s) for s in stages}
        windows = declare.counter(
            STABLE,
            "cascade_windows",
            "Windows of long documents scored beyond the first of each pair, by embedded stages",
            ["stage"],
        )
        self._windows = {s: windows.labels(s) for s in stages}
        padding = declare.counter(
            EXPERIMENTAL,
            "cascade_padding_tokens",
            "Tokens that filled up batches of embedded stages, beside cascade_tokens",
            ["stage"],
        )
        self._padding = {s: padding.labels(s) for s in stages}
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
        self._excluded = {(s, why): excluded.labels(s, why) for s in stages for why in ("blank", "refused")}
        seconds = declare.histogram(STABLE, "cascade_stage_seconds", "Time of a round", ["stage"], buckets=SECONDS)
        self._seconds = {s: seconds.labels(s) for s in stages}
        queue = declare.histogram(
            EXPERIMENTAL,
            "cascade_stage_queue_seconds",
            "Time that a round waited at its server, by its longest call, where that tells, or for this machine's cores",
            ["stage"],
            buckets=SECONDS,
        )
        room = declare.histogram(
            EXPERIMENTAL,
            "cascade_stage_room_seconds",
            "Time that a round waited here for room among the texts in flight at its server, where it had to",
            ["stage"],
            buckets=SECONDS,
        )
        compute = declare.histogram(
            EXPERIMENTAL,
            "cascade_stage_compute_seconds",
            "Time that a round was computed, where the server tells, or on this machine's cores",
            ["stage"],
            buckets=SECONDS,
        )
        self._parts = {
            s: tuple(
                (name, h.labels(s)) for name, h in (("queue_ms", queue), ("room_ms", room), ("compute_ms", compute))
            )
            for s in stages
        }

    def observe(self, item: Round) -> None:
        """Count a round."""
        self._rounds[item.stage, item.outcome].inc()
        if item.left:  # a round of which nothing was sent took no time, and would make the stage look fast
            self._seconds[item.stage].observe(item.elapsed_ms / 1000)
        cost = item.cost
        if cost is None:
            return
        self._pairs[item.stage].inc(item.pairs)
        self._tokens[item.stage].inc(cost.tokens)
        self._truncated[item.stage].inc(cost.truncated)
        self._windows[item.stage].inc(cost.windows)
        self._padding[item.stage].inc(cost.padding)
        self._repaired.inc(cost.repaired)
        self._prefix_tokens.inc(cost.prefix_tokens or 0)
        self._excluded[item.stage, "blank"].inc(item.blank)
        self._excluded[item.stage, "refused"].inc(item.refused)
        for name, histogram in self._parts[item.stage]:
            milliseconds: float | None = getattr(cost, name)
            if item.left and milliseconds is not None:
                histogram.observe(milliseconds / 1000)
