"""Keep the records of one release's decisions."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from cascade.policy.merge import merge, movement
from cascade.telemetry.metrics import Metrics
from cascade.telemetry.record_log import RecordLog
from cascade.telemetry.records import Decided, RecordFormat, is_sampled
from cascade.types import Request

__all__ = ["DecisionRecorder"]


class DecisionRecorder:
    """Hand decided requests to the log of records, and count rounds beside answers, and what they say of the large stage."""

    def __init__(self, form: RecordFormat, log: RecordLog, metrics: Metrics, now: Callable[[], datetime]) -> None:
        self._form = form
        self._log = log
        self._metrics = metrics
        self._now = now

    def wants(self, query_hash: str) -> bool:
        """Tell whether a query is in the sample."""
        return is_sampled(query_hash, self._form.source.sample)

    def record(self, decided: Decided) -> None:
        """Have a record made and written in the background."""
        if decided.dropped or decided.beside is not None:
            self._metrics.observe_beside(decided.beside)
        if decided.beside is not None and decided.large:
            order, _ = merge(decided.decision.candidates, decided.small, decided.large)
            self._metrics.ranking.moved(movement(decided.small, order))
        self._log.offer(self._form.making(decided, self._now()), _characters(decided.request))


def _characters(request: Request) -> int:
    return len(request.query) + sum(len(candidate.text) for candidate in request.candidates)
