"""Exceptions that a boundary caught: counted, and named in the log."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

from cascade.telemetry.logs import note
from cascade.telemetry.metrics import Metrics

__all__ = ["Faults"]

_QUIET_S: Final = 1.0
"""A place that fails with every request writes one line in this time."""


class Faults:
    """Count each fault, and log its class and innermost place, never its message: that may hold input."""

    def __init__(self, metrics: Metrics, clock: Callable[[], float]) -> None:
        self._metrics = metrics
        self._clock = clock
        self._told: dict[tuple[str, str], float] = {}

    def __call__(self, error: BaseException) -> None:
        """Tell of a fault."""
        self._metrics.count_fault(error)
        told, now = (type(error).__name__, _place(error)), self._clock()
        if now - self._told.get(told, -math.inf) < _QUIET_S:
            return
        self._told[told] = now
        note("error", "internal fault", exception=told[0], place=told[1])

    def counting(self, call: Callable[[], object]) -> Callable[[], None]:
        """Return a callback of an event loop whose faults are told of: the loop itself only writes them down."""

        def counted() -> None:
            try:
                call()
            except Exception as error:  # noqa: BLE001 - the boundary of a callback
                self(error)

        return counted


def _place(error: BaseException) -> str:
    """Return module and line where an exception was raised."""
    trace = error.__traceback__
    if trace is None:
        return "(not raised)"
    while trace.tb_next is not None:
        trace = trace.tb_next
    return f"{trace.tb_frame.f_globals.get('__name__', '(unknown)')}:{trace.tb_lineno}"
