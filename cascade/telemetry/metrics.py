"""Prometheus metrics. Every label has a closed set of values."""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Sequence
from typing import Final

from prometheus_client import disable_created_metrics
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from cascade.decision import Decision, DegradedReason, Round
from cascade.telemetry.admission_metrics import AdmissionMetrics, KeyMetrics
from cascade.telemetry.arm_metrics import ArmMetrics
from cascade.telemetry.cache_metrics import CacheMetrics
from cascade.telemetry.declared import SECONDS, STABLE, Declared, Declaring
from cascade.telemetry.guard_metrics import GuardMetrics
from cascade.telemetry.level_metrics import LevelMetrics
from cascade.telemetry.listener_metrics import ListenerMetrics
from cascade.telemetry.load_metrics import LoadMetrics
from cascade.telemetry.ranking_metrics import RankingMetrics
from cascade.telemetry.record_log import DropReason
from cascade.telemetry.stage_metrics import OUTCOMES, StageMetrics
from cascade.telemetry.trace_metrics import TraceMetrics
from cascade.telemetry.work_metrics import WorkMetrics
from cascade.types import Dialect, StageName

__all__ = ["CONTENT_TYPE", "Metrics"]

CONTENT_TYPE: Final = CONTENT_TYPE_LATEST
_OWN_SECONDS: Final = (0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1)
_DROPPED: Final = "dropped"
_REFUSED: Final = (400, 401, 403, 408, 413, 415, 422, 429, 503)


class Metrics:
    """Count and time requests in a registry of its own.

    Children are made once: looking a label up costs more than counting. ``clock`` tells how long this has been counted, and
    ``wall`` since when, in seconds since 1970.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, wall: Callable[[], float] = time.time) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self._declare = declare = Declaring()
        self.registry = declare.registry
        self._clock, self._began = clock, clock()
        self._uptime = declare.gauge(STABLE, "cascade_uptime_seconds", "Time that this process has counted for")
        declare.gauge(STABLE, "cascade_start_time_seconds", "When this process began to count: seconds since 1970").set(
            wall()
        )
        requests = declare.counter(
            STABLE, "cascade_requests", "Answered requests by dialect and placing stage", ["dialect", "stage"]
        )
        self._requests = {(d, s): requests.labels(d, s) for d in Dialect for s in StageName}
        self._degraded = declare.counters(
            STABLE, "cascade_degraded", "Degraded answers by reason", "reason", DegradedReason
        )
        rejected = declare.counter(
            STABLE, "cascade_rejected", "Requests refused, by dialect and status", ["dialect", "status"]
        )
        self._rejected = {(d, status): rejected.labels(d, str(status)) for d in Dialect for status in _REFUSED}
        self._seconds = declare.histogram(STABLE, "cascade_request_seconds", "Time of a request", buckets=SECONDS)
        self._own_seconds = declare.histogram(
            STABLE, "cascade_own_seconds", "Time of a request that no stage was awaited", buckets=_OWN_SECONDS
        )
        self._left_seconds = declare.histogram(
            STABLE, "cascade_left_seconds", "Time left before the deadline at the end", buckets=SECONDS
        )
        self.in_flight = declare.gauge(STABLE, "cascade_in_flight", "Requests under way")
        self.abandoned = declare.counter(
            STABLE, "cascade_abandoned", "Requests whose client went away before the answer"
        )
        self._faults = declare.counter(STABLE, "cascade_internal_faults", "Exceptions caught at a boundary")
        self.ranking = RankingMetrics(declare)
        self._stages = StageMetrics(declare)
        self.work = WorkMetrics(declare)
        self._beside = declare.counters(
            STABLE,
            "cascade_beside",
            "Small rounds beside answers in mode observe, by outcome; dropped where too many were under way",
            "outcome",
            (*OUTCOMES, _DROPPED),
        )
        self.records = declare.counter(STABLE, "cascade_records", "Decision records written")
        self._records_dropped = declare.counters(
            STABLE, "cascade_records_dropped", "Decision records that were not kept, by reason", "reason", DropReason
        )
        self.admission = AdmissionMetrics(declare)
        self.keys = KeyMetrics(declare)
        self.listeners = ListenerMetrics(declare)
        self.guards = GuardMetrics(declare)
        self.load = LoadMetrics(declare)
        self.safe_mode = declare.gauge(
            STABLE,
            "cascade_safe_mode",
            "1 where the release names a calibration and the safe mode decides in its place",
        )
        self._evidence = declare.gauge(
            STABLE,
            "cascade_evidence_mismatch",
            "1 where a certificate or report that the release names does not hold for it: missing, altered, of another "
            "policy or of other stages",
            ["kind"],
        )
        self.cache = CacheMetrics(declare)
        self.levels = LevelMetrics(declare)
        self.arms = ArmMetrics(declare)
        self.traces = TraceMetrics(declare)

    @property
    def declared(self) -> Sequence[Declared]:
        """Return every metric as it is declared."""
        return self._declare.declared

    def forget_stage(self, stage: StageName) -> None:
        """Show nothing any more of the server of a stage that the release does not have."""
        self.guards.forget(stage)
        self.load.forget_stage(stage)

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
            self._stages.observe(item)
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
        self.ranking.observe(decision)

    def observe_beside(self, done: Round | None) -> None:
        """Count a small round beside an answer, None for one that there was no room for."""
        self._beside[_DROPPED if done is None else done.outcome].inc()
        if done is not None:
            self._stages.observe(done)

    def drop_records(self, reason: DropReason, count: int) -> None:
        """Count records that were not kept."""
        self._records_dropped[reason].inc(count)

    def exposition(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        self._uptime.set(self._clock() - self._began)
        return generate_latest(self.registry)
