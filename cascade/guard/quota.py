"""What one tenant may ask for: requests a second, and requests at a time."""

from __future__ import annotations

from cascade.guard.deadline import Clock

__all__ = ["Quota", "TokenBucket"]


class TokenBucket:
    """Let ``rate`` requests a second through, and ``burst`` at once after a pause. A rate of 0 lets none through.

    What asks for more than a burst goes through when the bucket is full, and what it took too much is paid back before
    anything else does.
    """

    def __init__(self, rate: float, burst: int, clock: Clock) -> None:
        self._rate = rate
        self._burst = burst
        self._clock = clock
        self._level = float(burst) if rate else 0.0
        self._filled_at = clock()

    def take(self, count: int = 1) -> float:
        """Take ``count``; return 0. Where there are not so many, take nothing and return the seconds until there are."""
        now = self._clock()
        if now > self._filled_at:  # a clock that went back fills nothing
            self._level = min(float(self._burst), self._level + (now - self._filled_at) * self._rate)
        self._filled_at = now
        needed = min(count, self._burst)
        if self._level >= needed:
            self._level -= count
            return 0.0
        return (needed - self._level) / self._rate if self._rate else float("inf")


class Quota:
    """The weight and bounds of one tenant; None for a bound that it does not have. ``here`` counts its requests."""

    __slots__ = ("bucket", "concurrent", "here", "weight")

    def __init__(
        self, *, weight: float = 1.0, bucket: TokenBucket | None = None, concurrent: int | None = None
    ) -> None:
        self.weight = weight
        self.bucket = bucket
        self.concurrent = concurrent
        self.here = 0

    def has_place(self, count: int) -> bool:
        """Tell whether ``count`` more may be here; more than may ever be have one where nobody else is."""
        return self.concurrent is None or self.here + min(count, max(1, self.concurrent)) <= self.concurrent
