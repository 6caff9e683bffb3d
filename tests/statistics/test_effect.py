"""How large a paired difference is."""

from __future__ import annotations

import numpy as np
import pytest

from cascade.errors import ConfigError
from cascade.statistics.effect import Effect, effect


def test_a_worked_example() -> None:
    """Mean .2, squared deviations .4 over three: d_z .5477, times Hedges' .7236 for three degrees of freedom."""
    found = effect([-0.2, 0.0, 0.4, 0.6])
    assert found.size == pytest.approx(0.2 / np.sqrt(0.4 / 3) * 0.72360, rel=1e-5)
    assert (found.better, found.worse, found.equal) == (0.5, 0.25, 0.25)


def test_the_correction_makes_it_unbiased() -> None:
    """Over 20,000 samples of 5 with d = 0.8 the mean is 0.8, where the uncorrected one is a quarter above."""
    samples = np.random.default_rng(1).normal(0.8, 1.0, size=(20_000, 5))
    corrected = np.mean([effect(each).size or 0.0 for each in samples[:5000]])
    plain = np.mean(samples.mean(axis=1) / samples.std(axis=1, ddof=1))
    assert corrected == pytest.approx(0.8, abs=0.04)
    assert plain > 0.95


def test_for_many_queries_nothing_is_corrected() -> None:
    """The factor tends to one, and does not overflow on the way."""
    values = np.random.default_rng(2).normal(0.3, 1.0, size=20_000)
    assert effect(values).size == pytest.approx(values.mean() / values.std(), rel=1e-4)


@pytest.mark.parametrize(("values", "equal"), [([0.0] * 5, 1.0), ([0.2] * 5, 0.0), ([0.1, 0.2], 0.0)])
def test_without_spread_there_is_no_size(values: list[float], equal: float) -> None:
    """Differences that do not vary, or fewer than three, have no scale; shares are there all the same."""
    assert effect(values) == Effect(size=None, better=1.0 - equal, worse=0.0, equal=equal)


def test_a_difference_of_rounding_is_none() -> None:
    """The same list added up in another order is not better."""
    assert effect([1e-16, -1e-16, 0.5]).equal == pytest.approx(2 / 3)


def test_nan_is_refused_by_its_place() -> None:
    """A query without quality is not left out silently."""
    with pytest.raises(ConfigError, match="differences: 1 of 2 are not finite"):
        effect([np.nan, 1.0])
