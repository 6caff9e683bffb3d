"""The threads that embedded stages share. Each runs one single-threaded call at a time, the most urgent of all stages."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Final, Self

from cascade.errors import StageOverloaded, StageUnreachable
from cascade.guard.deadline import Clock
from cascade.stages.cores import usable_cores
from cascade.stages.engine.batching import Batching
from cascade.stages.engine.lane import Lane
from cascade.stages.engine.round import NotRun, Round, Unit

__all__ = ["Workers", "worker_pool"]

_MOST_WAITING: Final = 8192


class Workers:
    """Threads, begun with the first work, and the queues of the models that they run.

    More than ``most_waiting`` pairs never wait over all stages, but for a round that finds nobody waiting, or that has no
    deadline. A thread that dies is replaced.
    """

    def __init__(self, threads: int, *, clock: Clock = time.monotonic, most_waiting: int = _MOST_WAITING) -> None:
        self.threads = threads
        self.clock = clock
        self.lock = threading.RLock()  # a round that is collected as garbage is left wherever that happens, here too
        self._changed = threading.Condition(self.lock)
        self._most_waiting = most_waiting
        self._lanes: list[Lane] = []
        self._running: set[threading.Thread] = set()
        self._begun = 0
        self._closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def lane(self, batching: Batching, run: Callable[[Sequence[Unit]], None], *, keeps_parts: bool = False) -> Lane:
        """Return a queue for one model: ``run`` is called by a thread with what is to be done.

        It is kept from its first round on until it is removed.
        """
        return Lane(batching, run, threads=self.threads, keeps_parts=keeps_parts, settle=_wake)

    def enter(self, lane: Lane, round_: Round[Any]) -> None:
        """Queue a round. Raises NotRun where there is no room, no thread, or no queue any more."""
        with self.lock:
            if self._closed or lane.closed:
                raise NotRun(StageUnreachable, "closed")
            waiting = sum(each.waiting for each in self._lanes)
            bounded = round_.deadline.at != float("inf")
            if bounded and waiting and waiting + round_.waiting > self._most_waiting:
                raise NotRun(StageOverloaded, "queue_full")
            while len(self._running) < self.threads and self._begin_thread():
                pass
            if not self._running:
                raise NotRun(StageOverloaded, "no_thread")
            if lane not in self._lanes:
                self._lanes.append(lane)
            lane.enter(round_, self.clock())
            self._changed.notify(len(round_.texts))

    def ready(self, lane: Lane, units: Sequence[Unit]) -> None:
        """Queue inputs that are ready to be run. The lock is held."""
        lane.ready(units)
        self._changed.notify(len(units))

    def leave(self, lane: Lane, round_: Round[Any]) -> None:
        """Let nothing more of a round be run: whoever waited for it has gone, or has what it waited for."""
        with self.lock:
            round_.end()
            round_.runs(self.clock())  # where no call has begun, its wait ends here
            lane.leave(round_)

    def end(self, lane: Lane, round_: Round[Any], fault: NotRun | None = None) -> None:
        """Wake who waits for a round that is done, or is not to be. The lock is held."""
        ended = round_.end(fault)
        lane.leave(round_)
        if ended:
            _wake(round_)

    def remove(self, lane: Lane) -> None:
        """Take a queue away, and end what waits in it."""
        with self.lock:
            lane.closed = True
            if lane in self._lanes:
                self._lanes.remove(lane)
            self._end_all(lane)

    def close(self) -> None:
        """End what waits, and wait for the calls that run."""
        with self.lock:
            self._closed = True
            for lane in self._lanes:
                self._end_all(lane)
            self._lanes.clear()
            self._changed.notify_all()
            running = tuple(self._running)
        for thread in running:
            thread.join()

    def _end_all(self, lane: Lane) -> None:
        for round_ in tuple(lane.rounds):
            self.end(lane, round_, NotRun(StageUnreachable, "closed"))

    def _begin_thread(self) -> bool:
        """Begin one more; tell whether the system gave it. The lock is held."""
        thread = threading.Thread(target=self._live, name=f"embedded-{self._begun + 1}", daemon=True)
        try:
            thread.start()
        except RuntimeError:
            return False
        self._begun += 1
        self._running.add(thread)
        return True

    def _live(self) -> None:
        try:
            while (work := self._next()) is not None:
                lane, units = work
                try:
                    lane.run(units)
                finally:
                    with self.lock:
                        lane.running -= len(units)
                del lane, work, units  # neither text nor a model is held while nothing is done
        finally:
            with self.lock:
                self._running.discard(threading.current_thread())
                if not self._closed:
                    self._begin_thread()

    def _next(self) -> tuple[Lane, list[Unit]] | None:
        """Wait for the most urgent work of all queues; None once all is closed."""
        with self.lock:
            while not self._closed:
                now = self.clock()
                urgent = [(urgency, lane) for lane in self._lanes if (urgency := lane.most_urgent(now)) is not None]
                if urgent:
                    _, lane = min(urgent, key=lambda found: found[0])
                    if units := lane.take(now):
                        return lane, units
                    continue
                ripens_at = min((lane.ripens_at(now) for lane in self._lanes), default=float("inf"))
                self._changed.wait(None if ripens_at == float("inf") else max(0.0, ripens_at - now))
        return None


def worker_pool(threads: int | None = None) -> Workers:
    """Return the threads that embedded stages share; None means one for each core that this process may keep busy."""
    return Workers(threads or usable_cores())


def _wake(round_: Round[Any]) -> None:
    try:
        round_.loop.call_soon_threadsafe(round_.settle)
    except RuntimeError:  # the loop is closed, and with it whoever waited
        return
