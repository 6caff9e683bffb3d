"""Absolute deadlines on an injected clock."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["Clock", "Deadline"]

Clock = Callable[[], float]
"""A monotonic clock in seconds."""


@dataclass(frozen=True, slots=True)
class Deadline:
    """A moment on a monotonic clock, in seconds, that work must not outlive."""

    at: float
    clock: Clock

    @classmethod
    def after_ms(cls, milliseconds: float, clock: Clock) -> Deadline:
        """Return the deadline that lies ``milliseconds`` from now."""
        return cls(clock() + milliseconds / 1000.0, clock)

    def remaining_ms(self) -> float:
        """Return the milliseconds left, never below zero."""
        return max(0.0, (self.at - self.clock()) * 1000.0)

    def earlier_by_ms(self, milliseconds: float) -> Deadline:
        """Return a deadline that keeps ``milliseconds`` in reserve."""
        return Deadline(self.at - milliseconds / 1000.0, self.clock)

    def within_ms(self, milliseconds: float) -> Deadline:
        """Return the sooner of this deadline and ``milliseconds`` from now."""
        return Deadline(min(self.at, self.clock() + milliseconds / 1000.0), self.clock)

    def timeout(self) -> asyncio.Timeout:
        """Return a scope that is cancelled when the deadline passes and then raises ``TimeoutError``."""
        return asyncio.timeout(self.remaining_ms() / 1000.0)
