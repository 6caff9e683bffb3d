"""How long a stage takes, from how long it took: the running 90th percentile by tokens."""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from cascade.guard.deadline import Clock
from cascade.guard.token_size import least_tokens, size_of

__all__ = ["ExpectedMs", "Fit"]

_QUANTILE: Final = 0.9
_WINDOW_SECONDS: Final = 30.0
_KEPT: Final = 64
"""Rounds of one size that are kept: the newest, within the window."""
_ENOUGH: Final = 10
"""Fewer rounds of a size say nothing of its 90th percentile."""
_PROBE_EVERY: Final = 20
"""Of the rounds that would be refused one in so many is made."""
_PROBE_SECONDS: Final = 1.0
"""And one a second, where fewer than so many are refused in a second: else little traffic would be refused for long."""
_PROBES_TO_FORGET: Final = 3
_KEPT_OF_GIVEN_UP: Final = 0.9
_LONGER: Final = 1.25
"""A round that had little time left when it was sent, and was given up, is taken to need this many times what it had."""


class Fit(StrEnum):
    """What the estimate says of a round. The list is closed."""

    FITS = "fits"
    PROBE = "probe"
    TOO_LONG = "too_long"


@dataclass(slots=True)
class _Size:
    """The newest rounds of about one size, by time and in order."""

    rounds: deque[tuple[float, float]] = field(default_factory=deque)
    ordered: list[float] = field(default_factory=list)
    enough: int = _ENOUGH

    def add(self, at: float, ms: float) -> None:
        self.rounds.append((at, ms))
        insort(self.ordered, ms)
        if len(self.rounds) > _KEPT:
            self._drop()

    def p90_ms(self, now: float) -> float | None:
        """Return the percentile by nearest rank, None where too few rounds are within the window."""
        while self.rounds and now - self.rounds[0][0] > _WINDOW_SECONDS:
            self._drop()
        if not self.rounds:
            self.enough = _ENOUGH  # what fewer were enough for is forgotten
        known = len(self.ordered)
        return None if known < self.enough else self.ordered[math.ceil(_QUANTILE * known) - 1]

    def _drop(self) -> None:
        _, ms = self.rounds.popleft()
        del self.ordered[bisect_left(self.ordered, ms)]


class ExpectedMs:
    """Keep how long the rounds of a stage took, and tell whether another fits into the time that is left.

    Rounds are kept by size, two sizes an octave of tokens. A size of which too little is known is judged by its nearest
    known neighbours, on the assumption that a round of more tokens takes no less, and no more than in proportion: it is
    refused for what it takes at least, since most of a small round is not its tokens. Where no neighbour is known nothing is
    refused. Of the rounds that do not fit, one in twenty, and one a second, is made all the same, and
    three such in a row that came back in time, within the window, have everything else forgotten: a stage that was slow for a while gets
    its work back, and is judged by those three. All is O(log n) in the rounds kept, of which there are at most 64 a size.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._sizes: dict[int, _Size] = {}
        self._refused = 0
        self._probed_at = -math.inf
        self._probes_in_time: list[tuple[float, int, float]] = []

    def p90_ms(self, tokens: int) -> float | None:
        """Return the time within which nine of ten rounds of so many tokens ended, None where that is not known.

        Of a size of which too little is known it is the most that such a round takes by its neighbours.
        """
        at_size, below, above = self._around(tokens)
        if at_size is not None:
            return at_size
        bounds = []
        if below is not None:
            bounds.append(below[1] * tokens / least_tokens(below[0]))
        if above is not None:
            bounds.append(above[1])
        return min(bounds, default=None)

    def least_ms(self, tokens: int) -> float | None:
        """Return the same where the size is known, else what such a round takes at least by its neighbours."""
        at_size, below, above = self._around(tokens)
        if at_size is not None:
            return at_size
        bounds = []
        if below is not None:
            bounds.append(below[1])
        if above is not None:
            bounds.append(above[1] * tokens / least_tokens(above[0] + 1))
        return max(bounds, default=None)

    def judge(self, tokens: int, remaining_ms: float) -> Fit:
        """Tell whether a round of so many tokens fits into the remaining time, or is to be made as a probe."""
        least_ms = self.least_ms(tokens)
        if least_ms is None or least_ms <= remaining_ms:
            return Fit.FITS
        now = self._clock()
        if not self._refused and now - self._probed_at > _WINDOW_SECONDS:
            self._probed_at = now  # the first that is refused in a while
        self._refused += 1
        if self._refused < _PROBE_EVERY and now - self._probed_at < _PROBE_SECONDS:
            return Fit.TOO_LONG
        self._refused, self._probed_at = 0, now
        return Fit.PROBE

    def ended(self, tokens: int, ms: float, fit: Fit) -> None:
        """Keep a round that came back, and what was said of it before."""
        if fit is Fit.PROBE:
            now = self._clock()
            recent = [each for each in self._probes_in_time if 0 <= now - each[0] <= _WINDOW_SECONDS]
            self._probes_in_time = [*recent, (now, tokens, ms)]
            if len(self._probes_in_time) >= _PROBES_TO_FORGET:
                self._begin_anew()
                return
        self._size(tokens).add(self._clock(), ms)

    def gave_up(self, tokens: int, ms: float, fit: Fit, *, waited_ms: float = 0.0) -> None:
        """Keep a round that had not come back when its time was over: it would have taken longer, nobody knows how long.

        It is kept as having taken nine tenths of that time, so that rounds with about as much time are still made: how
        often those fail is for the breaker to judge. One that had waited before, for ``waited_ms``, is kept as a quarter
        longer than what was left to it, up to nine tenths of all: else, where the estimate is too low, rounds that have
        just so much time left would be sent, and fail, for ever. One that was given less than a round is expected to take
        says nothing.
        """
        if fit is Fit.PROBE:
            self._probes_in_time.clear()
        least_ms = self.least_ms(tokens)
        kept_ms = max(_KEPT_OF_GIVEN_UP * ms, min(_LONGER * ms, _KEPT_OF_GIVEN_UP * (ms + waited_ms)))
        if least_ms is None or (ms if waited_ms else kept_ms) >= least_ms:
            self._size(tokens).add(self._clock(), kept_ms)

    def _begin_anew(self) -> None:
        """Forget all but the probes that came back in time."""
        self._sizes.clear()
        for at, tokens, ms in self._probes_in_time:
            size = self._size(tokens)
            size.enough = 1
            size.add(at, ms)
        self._refused = 0
        self._probes_in_time.clear()

    def _around(self, tokens: int) -> tuple[float | None, tuple[int, float] | None, tuple[int, float] | None]:
        """Return the percentile of a size, where that is not known the nearest known size below and above with theirs."""
        if not self._sizes:
            return None, None, None
        now, size = self._clock(), size_of(tokens)
        at_size = self._known(size, now)
        if at_size is not None:
            return at_size, None, None
        below = self._first_known(sorted((other for other in self._sizes if other < size), reverse=True), now)
        above = self._first_known(sorted(other for other in self._sizes if other > size), now)
        return None, below, above

    def _first_known(self, sizes: Sequence[int], now: float) -> tuple[int, float] | None:
        for size in sizes:
            if (ms := self._known(size, now)) is not None:
                return size, ms
        return None

    def _known(self, size: int, now: float) -> float | None:
        kept = self._sizes.get(size)
        return None if kept is None else kept.p90_ms(now)

    def _size(self, tokens: int) -> _Size:
        return self._sizes.setdefault(size_of(tokens), _Size())
