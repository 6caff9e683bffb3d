"""A server on a virtual clock that scores in batches, behind the classes of the guards, joined as a stage joins them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from cascade.decision import DegradedReason
from cascade.guard.adaptive_limit import AdaptiveLimit
from cascade.guard.answering import Answering, Leaving
from cascade.guard.breaker import Breaker, Outcome
from cascade.guard.expected_ms import ExpectedMs, Fit
from cascade.policy.stage_specs import BreakerRules
from cascade.types import BreakerState

__all__ = ["Server", "ServerRound"]

_TOKENS: Final = 40
_UNBOUNDED: Final = 10**9
"""Tokens of a pair, and of all that may be in flight: pairs are what is bounded."""


@dataclass(eq=False, slots=True)
class ServerRound:
    """Pairs of a request at a server, to be answered until ``ends_at``. ``ended`` is called once: with None for scores."""

    pairs: int
    ended: Callable[[DegradedReason | None], None]
    asked_at: float
    ends_at: float
    epoch: int = 0
    fit: Fit = Fit.FITS
    leaving: Leaving | None = None
    cancelled: bool = False


class Server:
    """A server that batches, and the guards before it.

    ``slow`` multiplies its times. ``hangs`` takes batches and never answers, ``fails`` is the share of batches
    answered with an error, ``refuses`` answers what comes with 503 at once. A round that was given up after half of ``slow_s`` says something of the server. ``knows_queues`` tells whether what stands in its queue is told from what it does not answer.
    """

    def __init__(
        self, base_s: float, pair_s: float, most_pairs: int, clock: Callable[[], float], draw: Callable[[], float]
    ) -> None:
        self.base_s, self.pair_s, self.most_pairs = base_s, pair_s, most_pairs
        self.clock = clock
        self.slow = 1.0
        self.slow_s = 0.3
        self.hangs = False
        self.fails = 0.0
        self.refuses = False
        self.knows_queues = True
        self.in_flight = 0
        self.waiting: deque[ServerRound] = deque()
        self.queue: deque[ServerRound] = deque()
        self.running: list[ServerRound] = []
        self.states: list[tuple[float, BreakerState]] = []
        self.breaker = Breaker(BreakerRules(), clock, draw, lambda state: self.states.append((clock(), state)))
        self.expected = ExpectedMs(clock)
        self._answering = Answering()
        self._adaptive = AdaptiveLimit(
            most_texts=1024, most_tokens=_UNBOUNDED, call_texts=256, call_tokens=256 * _TOKENS
        )

    @property
    def limit(self) -> int:
        """Return the most pairs in flight."""
        return self._adaptive.texts

    @property
    def oldest_wait_ms(self) -> float:
        """Return how long the first in line for room has waited."""
        while self.waiting and self.waiting[0].cancelled:
            self.waiting.popleft()
        return (self.clock() - self.waiting[0].asked_at) * 1000 if self.waiting else 0.0

    def leaves(self, round_: ServerRound) -> bool:
        """Give a round its room, and tell whether it leaves: it does not where its time is too short by now."""
        now = self.clock()
        round_.fit = self.expected.judge(round_.pairs * _TOKENS, (round_.ends_at - now) * 1000)
        if round_.fit is Fit.TOO_LONG:
            self.breaker.leave(round_.epoch, Outcome.IGNORE)
            return False
        self.in_flight += round_.pairs
        round_.leaving = self._answering.leaves(now)
        return True

    def answered(self, round_: ServerRound, *, good: bool) -> None:
        """Learn from a round that was answered, and have its room back."""
        assert round_.leaving is not None
        self.breaker.leave(round_.epoch, Outcome.SUCCESS if good else Outcome.FAILURE)
        if good:
            ms, tokens = (self.clock() - round_.leaving.at) * 1000, round_.pairs * _TOKENS
            self._answering.answered(round_.leaving, round_.pairs, self.clock())
            self.expected.ended(tokens, ms, round_.fit)
            had_ms = (round_.ends_at - round_.asked_at) * 1000
            self._adaptive.answered(texts=round_.pairs, tokens=tokens, ms=ms, in_flight=self.in_flight, had_ms=had_ms)
        self.in_flight -= round_.pairs

    def refused(self, round_: ServerRound) -> None:
        """Learn from a round that the server had no room for, and have its own room back."""
        assert round_.leaving is not None
        self.breaker.leave(round_.epoch, Outcome.FAILURE)
        self.in_flight -= round_.pairs
        self._adaptive.dropped(round_.leaving.at, self.clock())

    def gave_up(self, round_: ServerRound) -> None:
        """Learn from a round whose time was over, as a stage does, and have its room back."""
        leaving, now = round_.leaving, self.clock()
        if leaving is None:  # it had no room
            self.breaker.leave(round_.epoch, Outcome.IGNORE)
            return
        self.in_flight -= round_.pairs
        ms, tokens = (now - leaving.at) * 1000, round_.pairs * _TOKENS
        queued = self.knows_queues and self._answering.is_queued(leaving, now)
        failed = not queued and ms * 2 >= self.slow_s * 1000
        self.breaker.leave(round_.epoch, Outcome.FAILURE if failed else Outcome.IGNORE)
        self.expected.gave_up(tokens, ms, round_.fit, waited_ms=(leaving.at - round_.asked_at) * 1000)
        carried: int | None = None
        if queued and self._adaptive.is_slow(tokens=tokens, ms=ms):
            carried = self._answering.texts_since(leaving)
            self._answering.fell_behind(now)
        self._adaptive.dropped(leaving.at, now, carried)
