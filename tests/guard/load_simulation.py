"""A sidecar, its two servers and its callers on a virtual clock: what becomes of requests under a controller of levels.

Discrete events, in seconds. Servers score in batches, as a GPU does: a batch takes a time of its own and some for
each pair. In front of each are the classes of the guards that are served: a circuit breaker, a limit of pairs in flight
that adapts, first come, first served, and the time that rounds take. Where the small server is away the large one scores the first of
the first stage's order. A request is answered by the best complete order there is at its deadline, as the pipeline does.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from cascade.decision import Action, Decision, DegradedReason, Level, Round
from cascade.guard.level_controller import LevelController, LevelRules
from cascade.guard.pressure import Pressure
from cascade.guard.queue_pressure import LevelBound, QueuePressure
from cascade.types import Dialect, StageCost, StageName

from .simulated_server import Server, ServerRound

__all__ = [
    "BOUNDS",
    "CAPACITY",
    "DEADLINE_S",
    "FIRST_STAGE",
    "LARGE_ALONE",
    "QUALITIES",
    "RULES",
    "Adaptive",
    "Controller",
    "Fixed",
    "Naive",
    "Request",
    "Served",
    "Server",
    "Simulation",
]

BOUNDS: Final = (LevelBound(50, 20), LevelBound(50, 8), LevelBound(50, 0), LevelBound(20, 0), LevelBound(0, 0))
"""Pairs that each level sends to the small and to the large stage."""
QUALITIES: Final = (1.0, 0.985, 0.93, 0.90, 0.80)
FIRST_STAGE: Final = QUALITIES[-1]
LARGE_ALONE: Final = 0.95
"""Quality where the large server scores without the small one."""
DEADLINE_S: Final = 0.3
CAPACITY: Final = 64 / (0.020 + 64 * 0.0015) / 20
"""Requests a second that the first level can serve: what the large server scores in full batches."""
RULES: Final = LevelRules(wait_target_ms=max(5.0, 0.1 * DEADLINE_S * 1000))
_RESERVE_S: Final = 0.01
_REFUSES_S: Final = 0.001
_OWN_S: Final = 0.001
_QUALITY_OF_SMALL: Final = {50: 0.93, 20: 0.90}


class Controller(Protocol):
    """Say which level decides."""

    level: int

    def tick(self, at: float, pressure: QueuePressure) -> int: ...

    def choose(self, pressure: Pressure) -> int:
        """Return the level of one request."""
        ...


class Adaptive(LevelController):
    """The controller that is served; a request goes by a level above where there is room for it."""

    fills: bool = True

    def choose(self, pressure: Pressure) -> int:
        return pressure.filling(self.level, self._bounds, self._rules.most_busy) if self.fills else self.level


class Fixed:
    """One level, come what may."""

    def __init__(self, level: int) -> None:
        self.level = level

    def tick(self, at: float, pressure: QueuePressure) -> int:
        return self.level

    def choose(self, pressure: Pressure) -> int:
        return self.level


class Naive:
    """Down a level where the mean wait is above a threshold, up where it is below half of it; once a quarter second."""

    def __init__(self, threshold_s: float = 0.02) -> None:
        self.level = 0
        self.waits: list[float] = []
        self._threshold_s = threshold_s

    def tick(self, at: float, pressure: QueuePressure) -> int:
        mean = sum(self.waits) / len(self.waits) if self.waits else 0.0
        self.waits.clear()
        if mean > self._threshold_s:
            self.level = min(len(BOUNDS) - 1, self.level + 1)
        elif mean < self._threshold_s / 2:
            self.level = max(0, self.level - 1)
        return self.level

    def choose(self, pressure: Pressure) -> int:
        return self.level


@dataclass(frozen=True, slots=True)
class Served:
    """What became of one request. ``level`` decided it, ``planned`` tells whether it got all that the level plans."""

    at: float
    level: int
    planned: bool
    quality: float
    took_s: float
    attempt: int


class Simulation:
    """Run callers that come at random at ``load(t)`` requests a second for ``seconds``.

    A round at the small server takes ``small_s`` at most.
    """

    def __init__(
        self,
        controller: Controller,
        load: Callable[[float], float],
        seconds: float,
        *,
        seed: int,
        disturb: Sequence[tuple[float, Callable[[Simulation], None]]] = (),
        retries: int = 0,
        clock_jumps: Sequence[tuple[float, float]] = (),
        knows_queues: bool = True,
        small_s: float = DEADLINE_S,
    ) -> None:
        self.controller = controller
        self.load = load
        self.seconds = seconds
        self._random = random.Random(seed)  # noqa: S311 - a simulation
        self.small = Server(0.008, 0.00015, 200, lambda: self.now, self._random.random)
        self.large = Server(0.020, 0.0015, 64, lambda: self.now, self._random.random)
        self.small.slow_s = self.small_s = small_s
        self.small.knows_queues = self.large.knows_queues = knows_queues
        self.served: list[Served] = []
        self.levels: list[tuple[float, int]] = [(0.0, controller.level)]
        self.retries = retries
        self.now = 0.0
        self._jumps = clock_jumps
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self.pressure = Pressure(self.clock, least_deadline_ms=DEADLINE_S * 1000)
        for name, server in ((StageName.SMALL, self.small), (StageName.LARGE, self.large)):
            self.pressure.watch_stage(name, server, server.breaker)
        self.pressure.alarm(4 * RULES.wait_target_ms, self._look_at_once)
        self._last_look = 0.0
        self._disturb = disturb

    def clock(self) -> float:
        """Return the time as the controller sees it."""
        return self.now + sum(by for at, by in self._jumps if at <= self.now)

    def run(self) -> Simulation:
        """Play it all, and return itself."""
        self.at(0.0, self._arrive)
        self.at(0.25, self._tick)
        for at, change in self._disturb:
            self.at(at, lambda change=change: change(self))  # type: ignore[misc]
        while self._events and self._events[0][0] <= self.seconds:
            self.now, _, event = heapq.heappop(self._events)
            event()
        return self

    def at(self, at: float, event: Callable[[], None]) -> None:
        heapq.heappush(self._events, (at, next(self._numbers), event))

    def _tick(self) -> None:
        self._look()
        self.at(self.now + 0.25, self._tick)

    def _look_at_once(self) -> None:
        if self.now - self._last_look >= 0.05:
            self._last_look = self.now
            self.at(self.now, self._look)

    def _look(self) -> None:
        self._last_look = self.now
        before = self.controller.level
        level = self.controller.tick(self.clock(), self.pressure.look())
        if level != before:
            self.levels.append((self.now, level))
            self.pressure.now_at(level)

    def _arrive(self) -> None:
        rate = self.load(self.now)
        if rate > 0:
            self._request(0)
        self.at(self.now + self._random.expovariate(rate if rate > 0 else 10.0), self._arrive)

    def _request(self, attempt: int) -> None:
        Request(self, attempt).begin()

    # -- servers ---------------------------------------------------------------------------------------------

    def send(self, server: Server, round_: ServerRound) -> bool:
        """Ask for room; tell whether the breaker lets it pass."""
        epoch = server.breaker.enter()
        if epoch is None:
            return False
        round_.epoch = epoch
        server.waiting.append(round_)
        self._admit(server)
        return True

    def _admit(self, server: Server) -> None:
        while server.waiting:
            head = server.waiting[0]
            if not head.cancelled and server.in_flight and server.in_flight + head.pairs > server.limit:
                break
            server.waiting.popleft()
            if head.cancelled:
                continue
            if not server.leaves(head):
                head.ended(DegradedReason.DEADLINE_TOO_SHORT)
                continue
            if server.refuses:
                self.at(self.now + _REFUSES_S, lambda head=head: self._refuse(server, head))  # type: ignore[misc]
                continue
            if isinstance(self.controller, Naive):
                self.controller.waits.append(self.now - head.asked_at)
            server.queue.append(head)
        self._start_batch(server)

    def _start_batch(self, server: Server) -> None:
        if server.running or not server.queue:
            return
        pairs = 0
        while server.queue and (not server.running or pairs + server.queue[0].pairs <= server.most_pairs):
            taken = server.queue.popleft()
            if taken.cancelled:
                continue  # the server sees that its client left before it begins
            server.running.append(taken)
            pairs += taken.pairs
        if server.running and not server.hangs:
            seconds = (server.base_s + pairs * server.pair_s) * server.slow * self._random.uniform(0.95, 1.05)
            self.at(self.now + seconds, lambda: self._end_batch(server))

    def _end_batch(self, server: Server) -> None:
        done, server.running = server.running, []
        failed = self._random.random() < server.fails
        for round_ in done:
            if not round_.cancelled:  # what was cancelled gave its place back when it was
                server.answered(round_, good=not failed)
                round_.ended(DegradedReason.STAGE_INVALID_ANSWER if failed else None)
        self._admit(server)

    def _refuse(self, server: Server, round_: ServerRound) -> None:
        if not round_.cancelled:
            server.refused(round_)
            round_.ended(DegradedReason.STAGE_OVERLOADED)
        self._admit(server)

    def cancel(self, server: Server, round_: ServerRound) -> None:
        """End a round at its deadline. A batch that has begun runs on: work for nobody."""
        round_.cancelled = True
        server.gave_up(round_)
        if server.hangs:
            server.running = [each for each in server.running if not each.cancelled]
        self._admit(server)


class Request:
    """One request on its way."""

    def __init__(self, simulation: Simulation, attempt: int) -> None:
        self.simulation = simulation
        self.attempt = attempt
        self.arrived_at = simulation.now
        self.level = simulation.controller.choose(simulation.pressure)
        self.bound = BOUNDS[self.level]
        self.ends_at = self.arrived_at + DEADLINE_S - _RESERVE_S
        self.rounds: list[Round] = []
        self.reasons: list[DegradedReason] = []
        self.quality = FIRST_STAGE
        self.current: tuple[Server, ServerRound, StageName] | None = None
        self.done = False

    def begin(self) -> None:
        self.simulation.pressure.arrived(self.level)
        self.simulation.at(self.ends_at, self._deadline)
        if self.bound.small:
            self._ask(StageName.SMALL)
        else:
            self._answer()

    def _server(self, stage: StageName) -> Server:
        return self.simulation.small if stage is StageName.SMALL else self.simulation.large

    def _ask(self, stage: StageName) -> None:
        simulation, server, pairs = self.simulation, self._server(stage), self.bound.of(stage)
        ends_at = min(self.ends_at, simulation.now + simulation.small_s) if stage is StageName.SMALL else self.ends_at
        round_ = ServerRound(pairs, lambda failed: self._ended(stage, failed), simulation.now, ends_at)
        self.current = (server, round_, stage)
        if not simulation.send(server, round_):
            self._ended(stage, DegradedReason.BREAKER_OPEN)
        elif ends_at < self.ends_at:
            simulation.at(ends_at, lambda: self._late(round_))

    def _ended(self, stage: StageName, failed: DegradedReason | None) -> None:
        assert self.current is not None
        _, round_, _ = self.current
        self.current = None
        if failed is None:
            self._scored(stage, round_)
        else:
            self.reasons.append(failed)
            if failed is not DegradedReason.BREAKER_OPEN:
                self.rounds.append(_failed_round(stage, round_.pairs, failed))
        too_short = failed is DegradedReason.DEADLINE_TOO_SHORT  # for the small one, so for the large one too
        if stage is StageName.SMALL and self.bound.large and not too_short:
            self._ask(StageName.LARGE)
        else:
            self._answer()

    def _scored(self, stage: StageName, round_: ServerRound) -> None:
        assert round_.leaving is not None
        room_ms = (round_.leaving.at - round_.asked_at) * 1000
        self.rounds.append(_scored_round(stage, round_.pairs, room_ms))
        if stage is StageName.SMALL:
            self.quality = _QUALITY_OF_SMALL[self.bound.small]
        else:
            self.quality = LARGE_ALONE if self.reasons else QUALITIES[self.level]

    def _late(self, round_: ServerRound) -> None:
        """End a round at the small server whose time is over, and go on without it."""
        if self.current is None or self.current[1] is not round_:
            return
        self.simulation.cancel(self.current[0], round_)
        self._ended(StageName.SMALL, DegradedReason.STAGE_TIMEOUT)

    def _deadline(self) -> None:
        if self.done:
            return
        assert self.current is not None
        server, round_, stage = self.current
        self.reasons.append(DegradedReason.STAGE_TIMEOUT)
        self.rounds.append(_failed_round(stage, round_.pairs, DegradedReason.STAGE_TIMEOUT))
        self.simulation.cancel(server, round_)
        self._answer()

    def _answer(self) -> None:
        simulation = self.simulation
        self.done = True
        took_s = simulation.now - self.arrived_at + _OWN_S
        simulation.served.append(
            Served(self.arrived_at, self.level, not self.reasons, self.quality, took_s, self.attempt)
        )
        simulation.pressure.left(self.level)
        simulation.pressure.answered(_decision(self.level, tuple(self.rounds), tuple(self.reasons)))
        if self.reasons and self.attempt < simulation.retries:
            simulation.at(simulation.now + 0.1, lambda: simulation._request(self.attempt + 1))


def _scored_round(stage: StageName, pairs: int, room_ms: float) -> Round:
    cost = StageCost(1, pairs, tokens_estimated=True, truncated=0, room_ms=room_ms)
    return Round(stage, "m", pairs, pairs, 0, 0, "ok", "", room_ms, cost)


def _failed_round(stage: StageName, pairs: int, failed: DegradedReason) -> Round:
    return Round(stage, "m", pairs, 0, 0, 0, failed, "deadline", 0.0)


def _decision(level: int, rounds: tuple[Round, ...], degraded: tuple[DegradedReason, ...]) -> Decision:
    return Decision(
        "id", Dialect.NATIVE, "r", Level(str(level), level), None, "h", 100, 10, 50, "fixed", Action.STATIC, (), None,
        None, None, {}, StageName.SMALL, degraded, 0, rounds, 0, DEADLINE_S * 1000, 0.0, 0.0,
    )  # fmt: skip
