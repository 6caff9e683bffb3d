"""When what did not work is tried again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from cascade.guard.deadline import Clock

__all__ = ["Later"]

_APART_S: Final = 30.0
_LONGEST_S: Final = 600.0


@dataclass(slots=True)
class Later:
    """When a desired release is tried again whose servers did not answer: later each time, another at once."""

    clock: Clock
    digest: str = ""
    until: float = 0.0
    apart_s: float = _APART_S

    def waits(self, digest: str) -> bool:
        """Tell whether it is too early for a release."""
        return digest == self.digest and self.clock() < self.until

    def put_off(self, digest: str) -> float:
        """Wait with a release, twice as long as the last time; return how many seconds."""
        if digest != self.digest:
            self.digest, self.apart_s = digest, _APART_S
        apart_s, self.apart_s = self.apart_s, min(_LONGEST_S, 2 * self.apart_s)
        self.until = self.clock() + apart_s
        return apart_s
