"""Several tests at once."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from cascade.errors import ConfigError
from cascade.statistics.sample import FloatArray, finite

__all__ = ["holm"]


def holm(p_values: npt.ArrayLike) -> FloatArray:
    """Return p-values (m,) adjusted so that rejecting those of at most alpha errs at all with probability alpha.

    Holm's step-down (1979): the i-th smallest times m - i + 1, never below a smaller one's, at most 1.
    Order is kept. It needs nothing of how the tests depend on each other. Raises ConfigError for what
    is no probability.
    """
    found = finite("p_values", p_values)
    if (found < 0.0).any() or (found > 1.0).any():
        raise ConfigError("p_values: a p-value is not between 0 and 1")
    order = np.argsort(found, kind="stable")
    adjusted = np.maximum.accumulate(found[order] * np.arange(found.size, 0, -1))
    result = np.empty_like(found)
    result[order] = np.minimum(adjusted, 1.0)
    return result
