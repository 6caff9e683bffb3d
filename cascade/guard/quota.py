"""What one tenant may ask for: requests a second, and requests at a time."""

from __future__ import annotations

from cascade.guard.deadline import Clock

__all__ = ["Quota", "TokenBucket"]


class TokenBucket:
    """Let ``rate`` requests a second through, and ``burst`` at once after a pause. A rate of 0 lets none through."""

    def __init__(self, rate: float, burst: int, clock: Clock) -> None:
        self._rate = rate
        self._burst = burst
        self._clock = clock
        self._level = float(burst) if rate else 0.0
        self._filled_at = clock()

    def take(self) -> float:
        """Take one; return 0. Where there is none, take nothing and return the seconds until there will be."""
        now = self._clock()
        if now > self._filled_at:  # a clock that went back fills nothing
            self._level = min(float(self._burst), self._level + (now - self._filled_at) * self._rate)
        self._filled_at = now
        if self._level >= 1.0:
            self._level -= 1.0
            return 0.0
        return (1.0 - self._level) / self._rate if self._rate else float("inf")


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
