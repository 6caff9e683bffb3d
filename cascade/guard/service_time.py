"""How long requests usually take once they have begun: a running quantile."""

from __future__ import annotations

import itertools
import math
from typing import Final

__all__ = ["ServiceTime"]

_LEAST_S: Final = 0.0005
_STEP: Final = math.log(1.1)
_BUCKETS: Final = 160  # from half a millisecond to half an hour, a tenth apart
_KEPT: Final = 256
"""Samples after which all weights are halved: what was seen long ago fades."""
_EVERY: Final = 16
_LEAST_SAMPLES: Final = 16
_SHARE: Final = 0.9
"""Nine of ten are done by then. With the earliest deadline first, who begins under overload has just the time that is
asked for: at the median every second one would be begun for nothing."""


class ServiceTime:
    """Keep the time that nine of ten took, of the last few hundred, to a tenth above; nothing is said before sixteen."""

    def __init__(self) -> None:
        self._weights = [0.0] * _BUCKETS
        self._total = 0.0
        self._until_next = _LEAST_SAMPLES
        self.usual_s = 0.0

    def add(self, seconds: float) -> None:
        """Count one request."""
        bucket = 0 if seconds <= _LEAST_S else min(_BUCKETS - 1, int(math.log(seconds / _LEAST_S) / _STEP) + 1)
        self._weights[bucket] += 1.0
        self._total += 1.0
        if self._total >= _KEPT:
            self._weights = [weight / 2 for weight in self._weights]
            self._total /= 2
        self._until_next -= 1
        if not self._until_next:
            self._until_next = _EVERY
            self.usual_s = self._quantile()

    def _quantile(self) -> float:
        """Return the upper end of the quantile's bucket.

        The lower end would lead down: who has just that time is cut off at it, and counts as faster than it was.
        """
        enough, bucket = self._total * _SHARE, 0
        for bucket, below in enumerate(itertools.accumulate(self._weights)):  # noqa: B007 - the last one counts
            if below >= enough:
                break
        return _LEAST_S * math.exp(bucket * _STEP)
