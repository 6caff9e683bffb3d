"""An exact bound on how often something happens, from how often it did."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from cascade.errors import ConfigError
from cascade.statistics.sample import between

__all__ = ["rate_upper_bound"]

_STEPS: Final = 60


def rate_upper_bound(happened: int, of: int, delta: float) -> float:
    """Return the Clopper-Pearson bound: the rate is below it with confidence 1 - delta.

    The greatest rate at which ``happened`` or fewer of ``of`` independent trials have a probability of
    delta. Raises ConfigError for counts that cannot be.
    """
    if not 0 <= happened <= of or of == 0:
        raise ConfigError(f"{happened} of {of}: the second must be at least 1, and the first between 0 and the second")
    aim = math.log(between("delta", delta, 0.0, 1.0))
    if happened == of:
        return 1.0
    counts = np.arange(1, happened + 1, dtype=np.float64)
    ways = np.concatenate([[0.0], np.cumsum(np.log((of - counts + 1.0) / counts))])
    heads = np.arange(happened + 1, dtype=np.float64)

    def log_at_most(rate: float) -> float:
        terms = ways + heads * math.log(rate) + (of - heads) * math.log1p(-rate)
        return float(np.logaddexp.reduce(terms))

    low, high = happened / of, 1.0
    for _ in range(_STEPS):
        middle = (low + high) / 2.0
        if middle <= 0.0 or middle >= 1.0 or log_at_most(middle) > aim:
            low = middle
        else:
            high = middle
    return high
