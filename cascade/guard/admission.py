"""Let a bounded number of requests begin, and decide whose turn it is when one ends."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping
from hashlib import blake2b
from typing import Final

from cascade.errors import RequestError, RequestFault
from cascade.guard.deadline import Clock
from cascade.guard.fair_queue import FairQueue, Rank
from cascade.guard.quota import Quota
from cascade.guard.seat import Asked, Bounds, Seat
from cascade.guard.service_time import ServiceTime
from cascade.types import Lane, Verdict

__all__ = ["Admission", "Settled"]

_OTHER_FLOWS: Final = 32
"""Flows that tenants without a quota share: their names may be anything, so there is no end of them."""
_LONGEST_RETRY_S: Final = 60.0
_LEAST_WEIGHT: Final = 1 / 256
"""Of one request more in what a request usually costs."""

Settled = Callable[[Verdict, Lane, str | None, float], None]
"""Told once of every request: the verdict, its lane, its tenant, and the seconds that it waited."""


class _Line:
    """One lane: its queue, how many may wait in it and have seats of it, and how long its requests take.

    It keeps what a request of one seat usually costs there, too.
    """

    __slots__ = ("_counted", "_usual_cost", "held", "lane", "most_held", "queue", "room", "took")

    def __init__(self, lane: Lane, bounds: Bounds) -> None:
        self.lane = lane
        self.queue: FairQueue[Seat] = FairQueue()
        self.room = bounds.waiting(lane)
        self.most_held = bounds.most if lane is Lane.SHORT else bounds.most_long
        self.held = 0
        self.took = ServiceTime()
        self._counted = 0
        self._usual_cost = 0.0

    def came(self, asked: Asked) -> None:
        """Learn what a request of one seat usually costs."""
        if asked.seats == 1:
            self._counted += 1
            self._usual_cost += max(_LEAST_WEIGHT, 1 / self._counted) * (asked.cost - self._usual_cost)

    def cost(self, asked: Asked) -> float:
        """Return what is charged to a tenant's share: for several seats no less than for as many usual requests."""
        return asked.cost if asked.seats == 1 else max(asked.cost, asked.seats * self._usual_cost)


class Admission:
    """Hand out seats: at once where one is free, else in fair order, for as long as it is of use.

    The two lanes have queues of their own. Within a lane what becomes free is shared between tenants by weight;
    of a tenant's requests the lowest class comes first, then the earliest deadline. A request that has less time
    left than nine of ten before it took is not begun. Where a queue is full, the worst request of the tenant
    that has most waiting for its weight gives way. Nobody is left without a verdict: whoever is not seated may
    answer without stages.

    A request that takes several seats begins as soon as one is free, and nothing begins after it until what is held
    is below the bound again: so it is never kept waiting by smaller ones, and fewer than twice ``most`` seats are held.
    Its tenant is charged for it no less than for as many usual requests of one seat, however short its queries are.

    Everything happens on one event loop. ``salt`` keys which tenants without a quota share a flow.
    """

    def __init__(
        self,
        bounds: Bounds,
        clock: Clock,
        *,
        quotas: Mapping[str, Quota] | None = None,
        settled: Settled | None = None,
        salt: bytes = b"",
    ) -> None:
        self._bounds = bounds
        self._clock = clock
        self._quotas = dict(quotas or {})
        self._settled = settled
        self._salt = salt
        self._short, self._long = _Line(Lane.SHORT, bounds), _Line(Lane.LONG, bounds)
        self._waiting: dict[Seat, None] = {}
        self._closed = False
        self.in_flight = 0

    def hold_to(self, quotas: Mapping[str, Quota]) -> None:
        """Hold tenants to these quotas from now on; a request under way stays counted in the quota that it began with."""
        self._quotas = dict(quotas)

    def waiting(self, lane: Lane) -> int:
        """Return how many requests wait in a lane."""
        return len(self._line(lane).queue)

    def held(self, lane: Lane) -> int:
        """Return how many requests of a lane have a seat."""
        return self._line(lane).held

    def oldest_wait_s(self) -> float:
        """Return how long the one that came first of all that wait has waited, 0 where none waits."""
        return next((self._clock() - seat.since for seat in self._waiting), 0.0)

    def ask(self, asked: Asked) -> Seat:
        """Return a seat, settled or to be waited for; whoever asked leaves it exactly once.

        Raises RequestError for a tenant beyond its quota; then there is no seat to leave.
        """
        now = self._clock()
        line = self._long if asked.cost >= self._bounds.long_cost else self._short
        quota = self._quotas.get(asked.tenant) if asked.tenant is not None else None
        if quota is not None:
            self._charge(quota, asked, line.lane)
        line.came(asked)
        seat = Seat(asked, line.lane, now, min(asked.seats, line.most_held), quota)
        if self._closed:
            self._settle(seat, Verdict.CLOSED, now)
        elif self._is_free(line) and not len(line.queue):
            self._seat(seat, line, Verdict.ADMITTED, now)
        elif now + line.took.usual_s >= asked.until:
            self._settle(seat, Verdict.EXPIRED, now)
        else:
            self._queue(seat, line, now)
        return seat

    def leave(self, seat: Seat) -> None:
        """Give a seat back, or the place in the queue."""
        if seat.quota is not None:
            seat.quota.here -= seat.asked.queries
        now = self._clock()
        if seat.is_held:
            line = self._line(seat.lane)
            line.took.add(now - seat.since)
            line.held -= seat.takes
            self.in_flight -= seat.takes
            if self._waiting:
                self._dispatch(now)
        elif seat.verdict is None:
            self._unqueue(seat)
            self._settle(seat, Verdict.ABANDONED, now)

    def close(self) -> None:
        """Settle all that wait, and whoever asks from now on: no stage is asked any more."""
        self._closed = True
        now = self._clock()
        for seat in list(self._waiting):
            self._unqueue(seat)
            self._settle(seat, Verdict.CLOSED, now)

    def _charge(self, quota: Quota, asked: Asked, lane: Lane) -> None:
        if not quota.has_place(asked.queries):
            self._tell(Verdict.OVER_CONCURRENT, lane, asked.tenant, 0.0)
            raise _over_quota(f"at most {quota.concurrent} requests of this tenant are served at a time", 1.0)
        wait_s = quota.bucket.take(asked.queries) if quota.bucket is not None else 0.0
        if wait_s:
            self._tell(Verdict.OVER_RATE, lane, asked.tenant, 0.0)
            raise _over_quota("more requests of this tenant than its quota a second", wait_s)
        quota.here += asked.queries

    def _line(self, lane: Lane) -> _Line:
        return self._short if lane is Lane.SHORT else self._long

    def _is_free(self, line: _Line) -> bool:
        return self.in_flight < self._bounds.most and line.held < line.most_held

    def _queue(self, seat: Seat, line: _Line, now: float) -> None:
        asked, queue = seat.asked, line.queue
        seat.flow = self._flow(seat)
        weight = 1.0 if seat.quota is None else seat.quota.weight
        rank = Rank(asked.priority, asked.until)
        if len(queue) >= line.room:
            given_way = queue.outranked(seat.flow, rank, weight)
            if given_way is None:
                self._settle(seat, Verdict.DISPLACED, now)
                return
            self._unqueue(given_way)
            self._settle(given_way, Verdict.DISPLACED, now)
        loop = asyncio.get_running_loop()
        seat.key = queue.push(seat, seat.flow, rank, weight=weight, cost=line.cost(asked))
        seat.turn = loop.create_future()
        seat.timer = loop.call_later(asked.until - line.took.usual_s - now, self._expire, seat)
        self._waiting[seat] = None

    def _flow(self, seat: Seat) -> str | None:
        tenant = seat.asked.tenant
        if tenant is None or seat.quota is not None:
            return tenant
        drawn = blake2b(tenant.encode("utf-8", "replace"), digest_size=4, key=self._salt).digest()
        return f"\n{int.from_bytes(drawn) % _OTHER_FLOWS}"  # no tenant has a line break in its name

    def _unqueue(self, seat: Seat) -> None:
        self._line(seat.lane).queue.remove(seat.flow, seat.key)
        self._forget(seat)

    def _forget(self, seat: Seat) -> None:
        """Forget that a seat waits, once it is out of its queue."""
        del self._waiting[seat]
        if seat.timer is not None:
            seat.timer.cancel()

    def _expire(self, seat: Seat) -> None:
        self._unqueue(seat)
        self._settle(seat, Verdict.EXPIRED, self._clock())

    def _dispatch(self, now: float) -> None:
        while self.in_flight < self._bounds.most:
            line = self._long if len(self._long.queue) and self._is_free(self._long) else self._short
            seat = line.queue.pop()
            if seat is None:
                return
            self._forget(seat)
            if now + line.took.usual_s > seat.asked.until:
                self._settle(seat, Verdict.EXPIRED, now)
            else:
                self._seat(seat, line, Verdict.WAITED, now)

    def _seat(self, seat: Seat, line: _Line, verdict: Verdict, now: float) -> None:
        self.in_flight += seat.takes
        line.held += seat.takes
        self._settle(seat, verdict, now)

    def _settle(self, seat: Seat, verdict: Verdict, now: float) -> None:
        seat.verdict = verdict
        self._tell(verdict, seat.lane, seat.asked.tenant, now - seat.since)
        seat.since = now
        if seat.turn is not None and not seat.turn.done():  # done: its waiter was cancelled, and will leave
            seat.turn.set_result(None)

    def _tell(self, verdict: Verdict, lane: Lane, tenant: str | None, waited_s: float) -> None:
        if self._settled is not None:
            self._settled(verdict, lane, tenant, waited_s)


def _over_quota(rule: str, retry_after_s: float) -> RequestError:
    whole = max(1, math.ceil(min(retry_after_s, _LONGEST_RETRY_S)))
    return RequestError(RequestFault.OVER_QUOTA, "tenant", rule, retry_after_s=whole)
