"""Metrics of what stands before the pipeline: the queue, tenants, and keys."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from prometheus_client import Counter

from cascade.telemetry.declared import SECONDS, STABLE, Declaring
from cascade.types import Denied, Lane, Verdict

__all__ = ["AdmissionMetrics", "KeyMetrics"]

_OTHER: Final = "other"
_LISTENERS: Final = ("public", "admin")
_SECONDS: Final = tuple(each for each in SECONDS if each <= 5.0)


class AdmissionMetrics:
    """Count what admission decided. Children are made once; tenants that the release does not name are one."""

    def __init__(self, declare: Declaring) -> None:
        verdicts = declare.counter(
            STABLE, "cascade_admission", "Requests by lane and by what admission decided", ["verdict", "lane"]
        )
        self._of_tenants = declare.counter(
            STABLE,
            "cascade_tenant_requests",
            "Requests by tenant, as far as the release names it, and by what admission decided",
            ["tenant", "verdict"],
        )
        self._waited = declare.histograms(
            STABLE,
            "cascade_queue_seconds",
            "Time that a request waited for its turn, where it had to",
            "lane",
            Lane,
            buckets=_SECONDS,
        )
        self.waiting = declare.gauge(STABLE, "cascade_queue_length", "Requests that wait for their turn", ["lane"])
        self.seats = declare.gauge(
            STABLE,
            "cascade_seats_held",
            "Seats held by requests that may ask stages: one each, more for a body of many queries",
            ["lane"],
        )
        self._by_lane = {(v, lane): verdicts.labels(v, lane) for v in Verdict for lane in Lane}
        self._by_tenant: dict[tuple[str, Verdict], Counter] = {}

    def name_tenants(self, names: Collection[str]) -> None:
        """Count these tenants by name, and all others as one; where there are none, count none.

        The series of those that are not named any more are gone.
        """
        counted = {*names, _OTHER} if names else set[str]()
        for name, verdict in self._by_tenant:
            if name not in counted:
                self._of_tenants.remove(name, verdict)
        self._by_tenant = {(name, v): self._of_tenants.labels(name, v) for name in counted for v in Verdict}

    def settled(self, verdict: Verdict, lane: Lane, tenant: str | None, waited_s: float) -> None:
        """Count one request."""
        self._by_lane[verdict, lane].inc()
        if waited_s:
            self._waited[lane].observe(waited_s)
        if self._by_tenant:
            (self._by_tenant.get((tenant or _OTHER, verdict)) or self._by_tenant[_OTHER, verdict]).inc()


class KeyMetrics:
    """Count who was not let in, and how the files of keys are."""

    def __init__(self, declare: Declaring) -> None:
        denied = declare.counter(
            STABLE, "cascade_denied", "Requests that were not let in, by listener and cause", ["listener", "why"]
        )
        self.denied = {(each, why): denied.labels(each, why) for each in _LISTENERS for why in Denied}
        read = declare.counter(
            STABLE,
            "cascade_keys_read",
            "Times that a file of keys was read again, by listener and result",
            ["listener", "result"],
        )
        self.read = {(each, result): read.labels(each, result) for each in _LISTENERS for result in ("ok", "failed")}
        self.live = declare.gauge(
            STABLE, "cascade_keys", "Keys that open something, by listener; none where it is open to all", ["listener"]
        )
