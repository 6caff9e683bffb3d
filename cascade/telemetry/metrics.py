"""Prometheus metrics. Every label has a closed set of values."""

from __future__ import annotations

from collections.abc import Container
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from cascade.telemetry.admission_metrics import AdmissionMetrics, KeyMetrics
from cascade.telemetry.arm_metrics import ArmMetrics
from cascade.telemetry.cache_metrics import CacheMetrics
from cascade.telemetry.guard_metrics import GuardMetrics
from cascade.telemetry.level_metrics import LevelMetrics
from cascade.telemetry.record_log import DropReason
from cascade.types import Decision, DegradedReason, Dialect, Round, StageName

__all__ = ["CONTENT_TYPE", "Metrics"]

CONTENT_TYPE: Final = CONTENT_TYPE_LATEST
_SECONDS: Final = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
_OWN_SECONDS: Final = (0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1)
_PAIRS: Final = (0, 5, 10, 20, 30, 50, 75, 100, 150, 200)
_OUTCOMES: Final = ("ok", *DegradedReason)
_DROPPED: Final = "dropped"
_REFUSED: Final = (400, 401, 403, 408, 413, 415, 422, 429, 503)


class Metrics:
    """Count and time requests in a registry of its own.

    Children are made once: looking a label up costs more than counting.
    """

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = registry = CollectorRegistry()
        stages = (StageName.SMALL, StageName.LARGE)
        requests = Counter(
            "cascade_requests",
            "Answered requests by dialect and placing stage",
            ["dialect", "stage"],
            registry=registry,
        )
        self._requests = {(d, s): requests.labels(d, s) for d in Dialect for s in StageName}
        degraded = Counter("cascade_degraded", "Degraded answers by reason", ["reason"], registry=registry)
        self._degraded = {reason: degraded.labels(reason) for reason in DegradedReason}
        rejected = Counter(
            "cascade_rejected", "Requests refused, by dialect and status", ["dialect", "status"], registry=registry
        )
        self._rejected = {(d, status): rejected.labels(d, str(status)) for d in Dialect for status in _REFUSED}
        rounds = Counter("cascade_rounds", "Rounds by stage and outcome", ["stage", "outcome"], registry=registry)
        self._rounds = {(s, o): rounds.labels(s, o) for s in stages for o in _OUTCOMES}
        pairs = Counter(
            "cascade_pairs", "Pairs scored by stage, without those from the cache", ["stage"], registry=registry
        )
        self._pairs = {s: pairs.labels(s) for s in stages}
        tokens = Counter(
            "cascade_tokens", "Tokens by stage, estimated where the server does not tell", ["stage"], registry=registry
        )
        self._tokens = {s: tokens.labels(s) for s in stages}
        truncated = Counter("cascade_truncated_pairs", "Pairs not read in full", ["stage"], registry=registry)
        self._truncated = {s: truncated.labels(s) for s in stages}
        windows = Counter(
            "cascade_windows",
            "Windows of long documents scored beyond the first of each pair, by embedded stages",
            ["stage"],
            registry=registry,
        )
        self._windows = {s: windows.labels(s) for s in stages}
        padding = Counter(
            "cascade_padding_tokens",
            "Tokens that filled up batches of embedded stages, beside cascade_tokens",
            ["stage"],
            registry=registry,
        )
        self._padding = {s: padding.labels(s) for s in stages}
        excluded = Counter(
            "cascade_excluded_documents", "Documents left out of a stage", ["stage", "why"], registry=registry
        )
        self._excluded = {(s, why): excluded.labels(s, why) for s in stages for why in ("blank", "refused")}
        seconds = Histogram("cascade_stage_seconds", "Time of a round", ["stage"], buckets=_SECONDS, registry=registry)
        self._stage_seconds = {s: seconds.labels(s) for s in stages}
        self._seconds = Histogram("cascade_request_seconds", "Time of a request", buckets=_SECONDS, registry=registry)
        self._own_seconds = Histogram(
            "cascade_own_seconds",
            "Time of a request that no stage was awaited",
            buckets=_OWN_SECONDS,
            registry=registry,
        )
        self._left_seconds = Histogram(
            "cascade_left_seconds", "Time left before the deadline at the end", buckets=_SECONDS, registry=registry
        )
        self._depth = Histogram("cascade_depth", "Candidates within depth", buckets=_PAIRS, registry=registry)
        self._escalated = Histogram("cascade_escalated", "Candidates escalated", buckets=_PAIRS, registry=registry)
        self._faults = Counter("cascade_internal_faults", "Exceptions caught at a boundary", registry=registry)
        self.abandoned = Counter(
            "cascade_abandoned", "Requests whose client went away before the answer", registry=registry
        )
        beside = Counter(
            "cascade_beside",
            "Small rounds beside answers in mode observe, by outcome; dropped where too many were under way",
            ["outcome"],
            registry=registry,
        )
        self._beside = {outcome: beside.labels(outcome) for outcome in (*_OUTCOMES, _DROPPED)}
        self.records = Counter("cascade_records", "Decision records written", registry=registry)
        records_dropped = Counter(
            "cascade_records_dropped", "Decision records that were not kept, by reason", ["reason"], registry=registry
        )
        self._records_dropped = {reason: records_dropped.labels(reason) for reason in DropReason}
        self.admission = AdmissionMetrics(registry)
        self.keys = KeyMetrics(registry)
        self.guards = GuardMetrics(registry)
        self.in_flight = Gauge("cascade_in_flight", "Requests under way", registry=registry)
        self.unusable = Gauge(
            "cascade_stage_unusable", "1 where a server cannot serve its stage", ["stage"], registry=registry
        )
        self.waiting = Gauge(
            "cascade_upstream_waiting",
            "Pairs waiting at a server, as it tells, or for this machine's cores",
            ["stage"],
            registry=registry,
        )
        self.signal_stale = Gauge(
            "cascade_upstream_signal_stale",
            "1 where what a server told of its load is too old to count",
            ["stage"],
            registry=registry,
        )
        self.signal_silent = Gauge(
            "cascade_upstream_signal_silent",
            "1 where a server told of its load and has not for so long that it counts as one that tells nothing",
            ["stage"],
            registry=registry,
        )
        self.safe_mode = Gauge(
            "cascade_safe_mode",
            "1 where the release names a calibration and the safe mode decides in its place",
            registry=registry,
        )
        self._evidence = Gauge(
            "cascade_evidence_mismatch",
            "1 where a certificate or report that the release names does not hold for it: missing, altered, of another "
            "policy or of other stages",
            ["kind"],
            registry=registry,
        )
        self.cache = CacheMetrics(registry)
        self.levels = LevelMetrics(registry)
        self.arms = ArmMetrics(registry)

    def forget_stage(self, stage: StageName) -> None:
        """Show nothing any more of the server of a stage that the release does not have."""
        self.unusable.remove(stage)
        self.guards.forget(stage)
        self.forget_load(stage)

    def forget_load(self, stage: StageName) -> None:
        """Show nothing any more of the load of a server that tells none."""
        self.waiting.remove(stage)
        self.signal_stale.remove(stage)
        self.signal_silent.remove(stage)

    def tell_evidence(self, faults: Container[str]) -> None:
        """Show which kinds of evidence do not hold for the release that serves."""
        for kind in ("certificate", "report"):
            self._evidence.labels(kind).set(kind in faults)

    def count_fault(self, error: BaseException) -> None:
        """Count an exception that a boundary caught."""
        self._faults.inc()

    def reject(self, dialect: Dialect, status: int) -> None:
        """Count a refused request."""
        self._rejected[dialect, status].inc()

    def observe(self, decision: Decision, *, answered: bool = True) -> None:
        """Count a request: of one that was not answered, for the caller wanted an error then, the rounds alone."""
        for item in decision.rounds:
            self._observe_round(item)
        self.arms.decided(decision, answered=answered)
        if not answered:
            return
        self._requests[decision.dialect, decision.stage].inc()
        self.levels.answered(decision)
        for reason in decision.degraded:
            self._degraded[reason].inc()
        self._seconds.observe(decision.total_ms / 1000)
        self._own_seconds.observe(decision.own_ms / 1000)
        self._left_seconds.observe(max(0.0, decision.deadline_ms - decision.total_ms) / 1000)
        self._depth.observe(decision.depth)
        self._escalated.observe(len(decision.escalated))

    def observe_beside(self, done: Round | None) -> None:
        """Count a small round beside an answer, None for one that there was no room for."""
        self._beside[_DROPPED if done is None else done.outcome].inc()
        if done is not None:
            self._observe_round(done)

    def drop_records(self, reason: DropReason, count: int) -> None:
        """Count records that were not kept."""
        self._records_dropped[reason].inc(count)

    def _observe_round(self, item: Round) -> None:
        self._rounds[item.stage, item.outcome].inc()
        if item.left:  # a round of which nothing was sent took no time, and would make the stage look fast
            self._stage_seconds[item.stage].observe(item.elapsed_ms / 1000)
        if item.cost is None:
            return
        self._pairs[item.stage].inc(item.pairs)
        self._tokens[item.stage].inc(item.cost.tokens)
        self._truncated[item.stage].inc(item.cost.truncated)
        self._windows[item.stage].inc(item.cost.windows)
        self._padding[item.stage].inc(item.cost.padding)
        self._excluded[item.stage, "blank"].inc(item.blank)
        self._excluded[item.stage, "refused"].inc(item.refused)

    def exposition(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        return generate_latest(self.registry)
