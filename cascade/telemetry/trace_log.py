"""Export spans from a thread of its own: a collector that is slow or away costs spans, and nothing else."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Final, Protocol

from cascade.telemetry.logs import note
from cascade.telemetry.spans import Span

__all__ = ["NotExported", "SpanDrop", "SpanExport", "TraceLog"]

_BATCH: Final = 512
_WAIT_S: Final = 1.0
"""How long a span waits for others to leave with."""


class SpanDrop(StrEnum):
    """Why a span was not exported. The list is closed."""

    QUEUE_FULL = "queue_full"
    TOO_MANY = "too_many"
    REFUSED = "refused"
    NOT_TAKEN = "not_taken"
    FAULT = "fault"
    SHUTDOWN = "shutdown"


class NotExported(Exception):
    """No collector took the spans. ``why`` is a code or a class of exception, never what a collector wrote."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


class SpanExport(Protocol):
    """Where spans are exported to. It is called from one thread."""

    def export(self, spans: Sequence[Span]) -> int:
        """Send spans, within a time of its own; return how many of them were refused. Raises NotExported."""
        ...

    def close(self) -> None:
        """End what is being sent, as far as that can be, and give connections back."""
        ...


class TraceLog:
    """Hand the spans of traces to a thread that exports them in batches.

    At most ``most`` spans wait; a trace that does not fit is dropped whole. ``count_exported`` and ``count_dropped`` are
    called from any thread, ``count_fault`` for what ``export`` raises beside NotExported. What a collector did not take is
    dropped, not kept for later; the log has a line of the first batch, and again after it was well.
    """

    def __init__(
        self,
        export: SpanExport,
        *,
        most: int,
        count_exported: Callable[[int], None],
        count_dropped: Callable[[SpanDrop, int], None],
        count_fault: Callable[[BaseException], None],
        wait_s: float = _WAIT_S,
    ) -> None:
        self._export = export
        self._most = most
        self._count_exported = count_exported
        self._count_dropped = count_dropped
        self._count_fault = count_fault
        self._wait_s = wait_s
        self._waiting: deque[Span] = deque()
        self._leaving: list[Span] = []
        self._changed = threading.Condition()
        self._closing = False
        self._is_told = False
        self._thread = threading.Thread(target=self._work, name="spans", daemon=True)
        self._thread.start()

    def offer(self, spans: Sequence[Span], left_out: int) -> None:
        """Have the spans of a trace exported; ``left_out`` is how many it had beside them."""
        if left_out:
            self._count_dropped(SpanDrop.TOO_MANY, left_out)
        with self._changed:
            if not self._closing and len(self._waiting) + len(spans) <= self._most:
                self._waiting.extend(spans)
                self._changed.notify()
                return
            reason = SpanDrop.SHUTDOWN if self._closing else SpanDrop.QUEUE_FULL
        self._count_dropped(reason, len(spans))

    async def aclose(self, seconds: float) -> None:
        """Take no more, export what waits for at most some seconds, and drop the rest."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        await asyncio.to_thread(self._thread.join, seconds)
        with self._changed:  # what is still being sent counts as lost, and is not counted by its thread any more
            left = len(self._waiting) + len(self._leaving)
            self._waiting.clear()
            self._leaving = []
        if left:
            self._count_dropped(SpanDrop.SHUTDOWN, left)
        self._export.close()

    def _work(self) -> None:
        while spans := self._next():
            exported, dropped = self._sent(spans)
            with self._changed:
                is_counted, self._leaving = bool(self._leaving), []
            if is_counted:
                self._count_exported(exported)
                for reason, count in dropped.items():
                    self._count_dropped(reason, count)

    def _next(self) -> list[Span]:
        """Return the next batch, once it is full or its first span has waited; none at the end."""
        with self._changed:
            while not self._waiting and not self._closing:
                self._changed.wait()
            until = time.monotonic() + self._wait_s
            while len(self._waiting) < _BATCH and not self._closing and (left_s := until - time.monotonic()) > 0:
                self._changed.wait(left_s)
            self._leaving = [self._waiting.popleft() for _ in range(min(_BATCH, len(self._waiting)))]
            return self._leaving

    def _sent(self, spans: Sequence[Span]) -> tuple[int, dict[SpanDrop, int]]:
        """Export a batch; return how many were taken, and how many were not and why."""
        try:
            refused = self._export.export(spans)
        except NotExported as error:
            if not self._is_told:
                note("error", "spans cannot be exported, and are dropped", why=error.why)
            self._is_told = True
            return 0, {SpanDrop.NOT_TAKEN: len(spans)}
        except Exception as error:  # noqa: BLE001 - the boundary of a background thread
            self._count_fault(error)
            return 0, {SpanDrop.FAULT: len(spans)}
        if self._is_told:
            note("info", "spans are exported again")
        self._is_told = False
        return len(spans) - refused, {SpanDrop.REFUSED: refused} if refused else {}
