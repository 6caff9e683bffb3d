"""The exact bound on a rate."""

from __future__ import annotations

import math

import numpy as np
import pytest

from cascade.errors import ConfigError
from cascade.statistics.bounds import rate_upper_bound


def test_nothing_in_a_hundred_is_the_rule_of_three_made_exact() -> None:
    """1 - .05^(1/100) = .0295."""
    assert rate_upper_bound(0, 100, 0.05) == pytest.approx(1.0 - 0.05**0.01)


def test_three_in_a_thousand() -> None:
    """The .95 quantile of Beta(4, 997)."""
    assert rate_upper_bound(3, 1000, 0.05) == pytest.approx(0.0077352447184795)


def test_all_of_them_is_no_bound() -> None:
    """The rate may be 1."""
    assert rate_upper_bound(5, 5, 0.05) == 1.0
    assert rate_upper_bound(99999, 100000, 0.05) == pytest.approx(0.9999994870671878)


@pytest.mark.parametrize("rate", [0.001, 0.02, 0.3])
def test_it_fails_as_rarely_as_promised(rate: float) -> None:
    """Exactly: the probability of a count whose bound is below the rate, over every count."""
    of, delta = 60, 0.1
    failing = [count for count in range(of + 1) if rate_upper_bound(count, of, delta) < rate]
    ways = [math.comb(of, count) * rate**count * (1.0 - rate) ** (of - count) for count in failing]
    assert float(np.sum(ways)) <= delta


@pytest.mark.parametrize(("happened", "of"), [(-1, 5), (6, 5), (0, 0)])
def test_counts_that_cannot_be_are_refused(happened: int, of: int) -> None:
    """Whatever delta is."""
    with pytest.raises(ConfigError, match="the second must be at least 1"):
        rate_upper_bound(happened, of, 0.05)
