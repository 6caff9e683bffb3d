"""Stop asking a server that fails, and find out with few requests when it is well again."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from enum import StrEnum
from typing import Final

from cascade.guard.deadline import Clock
from cascade.policy.stage_specs import BreakerRules
from cascade.types import BreakerState

__all__ = ["Breaker", "Outcome"]

_SLICES: Final = 10
_JITTER: Final = 0.2


class Outcome(StrEnum):
    """What a round says of its server. The list is closed; a round that did not reach it says nothing."""

    SUCCESS = "success"
    FAILURE = "failure"
    IGNORE = "ignore"


class Breaker:
    """Count how rounds at one server end, and let none leave while it fails.

    Closed, it opens where, of at least ``min_calls`` rounds within the window, ``failure_share`` failed, or where so
    many as ``consecutive`` failed in a row within it. Open, it refuses for ``open_s``, doubled with each opening that
    follows another up to ``max_open_s``, give or take a fifth. Then it is half open: one round at a time is let
    through. So many as ``probes`` that succeed in a row close it, one that fails opens it. Rounds that began
    in an earlier state no longer count. Every step is O(1).

    ``draw`` gives numbers in [0, 1); ``changed`` is told of each new state.
    """

    def __init__(
        self,
        rules: BreakerRules,
        clock: Clock,
        draw: Callable[[], float],
        changed: Callable[[BreakerState], None] = lambda state: None,
    ) -> None:
        self._rules = rules
        self._clock = clock
        self._draw = draw
        self._changed = changed
        self._state = BreakerState.CLOSED
        self._epoch = 0
        self._until = 0.0
        self._openings = 0
        self._closed_at = 0.0
        self._probing = False
        self._probes_left = 0
        self._window = _Window(rules.window_s, rules.consecutive)

    @property
    def state(self) -> BreakerState:
        """Return the state; an open breaker whose time is over is half open from the next round on."""
        return self._state

    @property
    def is_open(self) -> bool:
        """Tell whether it is open and its time not over: nothing will be let through for a while."""
        return self._state is BreakerState.OPEN and self._clock() < self._until

    @property
    def refuses(self) -> bool:
        """Tell whether no round is let through now: it is open, or half open with a round under way."""
        return self.is_open or (self._state is BreakerState.HALF_OPEN and self._probing)

    def enter(self) -> int | None:
        """Let a round leave, or return None. What it returns is to be given to ``leave``, whatever the round comes to."""
        if self._state is BreakerState.OPEN and self._clock() >= self._until:
            self._probes_left = self._rules.probes
            self._probing = False
            self._become(BreakerState.HALF_OPEN)
        match self._state:
            case BreakerState.CLOSED:
                return self._epoch
            case BreakerState.HALF_OPEN if not self._probing:
                self._probing = True
                return self._epoch
            case _:
                return None

    def leave(self, epoch: int, outcome: Outcome) -> None:
        """Count how a round ended that ``enter`` let leave."""
        if epoch != self._epoch:
            return
        if self._state is BreakerState.HALF_OPEN:
            self._probing = False
            self._count_probe(outcome)
        elif outcome is not Outcome.IGNORE:
            self._count(failed=outcome is Outcome.FAILURE)

    def _count(self, *, failed: bool) -> None:
        window, rules = self._window, self._rules
        window.add(self._clock(), failed=failed)
        if not failed:
            return
        enough = window.rounds >= rules.min_calls and window.failures >= rules.failure_share * window.rounds
        if enough or window.is_failing_in_a_row:
            self._open()

    def _count_probe(self, outcome: Outcome) -> None:
        match outcome:
            case Outcome.SUCCESS:
                self._probes_left -= 1
                if not self._probes_left:
                    self._closed_at = self._clock()
                    self._window = _Window(self._rules.window_s, self._rules.consecutive)
                    self._become(BreakerState.CLOSED)
            case Outcome.FAILURE:
                self._open()
            case Outcome.IGNORE:
                pass

    def _open(self) -> None:
        now, rules = self._clock(), self._rules
        if self._state is BreakerState.CLOSED and now - self._closed_at > rules.max_open_s:
            self._openings = 0  # it was well for long: this is another fault
        wait_s = min(rules.max_open_s, rules.open_s * 2.0 ** min(self._openings, 30))
        self._openings += 1
        self._until = now + wait_s * (1 - _JITTER + 2 * _JITTER * self._draw())
        self._become(BreakerState.OPEN)

    def _become(self, state: BreakerState) -> None:
        self._state = state
        self._epoch += 1
        self._changed(state)


class _Window:
    """Rounds and failures within a time, in slices of a tenth of it, and the newest failures without a success since."""

    def __init__(self, seconds: float, consecutive: int) -> None:
        self._slice_s = seconds / _SLICES
        self._at = 0
        self._rounds = [0] * _SLICES
        self._failures = [0] * _SLICES
        self._row: deque[int] = deque(maxlen=consecutive)
        self.rounds = 0
        self.failures = 0

    @property
    def is_failing_in_a_row(self) -> bool:
        """Tell whether as many as ``consecutive`` failures within the time had no success between or after them."""
        return len(self._row) == self._row.maxlen and self._row[0] > self._at - _SLICES

    def add(self, now: float, *, failed: bool) -> None:
        at = int(now / self._slice_s)
        for gone in range(max(self._at + 1, at - _SLICES + 1), at + 1):
            place = gone % _SLICES
            self.rounds -= self._rounds[place]
            self.failures -= self._failures[place]
            self._rounds[place] = self._failures[place] = 0
        self._at = max(self._at, at)
        place = self._at % _SLICES
        self._rounds[place] += 1
        self.rounds += 1
        if failed:
            self._failures[place] += 1
            self.failures += 1
            self._row.append(at)
        else:
            self._row.clear()
