"""Tell every active release how long requests waited for their turn: the queue before them is one."""

from __future__ import annotations

from cascade.guard.admission import Settled
from cascade.guard.pressure import Pressure
from cascade.types import Lane, Verdict

__all__ = ["QueueWaits"]


class QueueWaits:
    """Pass each request's verdict at admission on, and the waits of those let in to ``pressures`` too."""

    def __init__(self, settled: Settled) -> None:
        self._settled = settled
        self.pressures: tuple[Pressure, ...] = ()

    def settled(self, verdict: Verdict, lane: Lane, tenant: str | None, waited_s: float) -> None:
        """Take in one request's verdict."""
        self._settled(verdict, lane, tenant, waited_s)
        if verdict is Verdict.ADMITTED or verdict is Verdict.WAITED:
            for pressure in self.pressures:
                pressure.waited(waited_s * 1000)
