"""Holm's step-down."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from cascade.errors import ConfigError
from cascade.statistics.holm import holm


def test_a_worked_example() -> None:
    """.01 x 4, .02 x 3, .03 x 2, .04 x 1; the third and fourth never below the one before."""
    assert holm([0.03, 0.01, 0.04, 0.02]).tolist() == pytest.approx([0.06, 0.04, 0.06, 0.06])


def test_it_never_exceeds_one_and_leaves_one_alone() -> None:
    """Probabilities stay such, and a single test is not adjusted."""
    assert holm([0.9, 0.6]).tolist() == [1.0, 1.0]
    assert holm([0.3]).tolist() == [0.3]


def test_equal_p_values_are_adjusted_alike() -> None:
    """Order among equals does not matter."""
    assert holm([0.02, 0.02, 0.5]).tolist() == pytest.approx([0.06, 0.06, 0.5])


def test_a_family_errs_at_all_no_more_often_than_alpha_and_unadjusted_it_does() -> None:
    """Eight tests, six of true nulls, correlated: over 4,000 families at most 0.05 + 3 se; plain p-values fail that."""
    generator = np.random.default_rng(9)
    z = np.sqrt(0.8) * generator.normal(size=(4000, 8)) + np.sqrt(0.2) * generator.normal(size=(4000, 1))
    upper = stats.norm.sf(z + np.array([0.0] * 6 + [3.0] * 2))
    adjusted = np.array([holm(each) for each in upper])
    bound = 0.05 + 3 * np.sqrt(0.05 * 0.95 / 4000)
    assert (adjusted[:, :6] <= 0.05).any(axis=1).mean() <= bound
    assert (upper[:, :6] <= 0.05).any(axis=1).mean() > bound
    assert (adjusted[:, 6:] <= 0.05).mean() > 0.6


@pytest.mark.parametrize("wrong", [[0.5, 1.1], [-0.1]])
def test_what_is_no_probability_is_refused(wrong: list[float]) -> None:
    """Below 0 or above 1."""
    with pytest.raises(ConfigError, match="a p-value is not between 0 and 1"):
        holm(wrong)


def test_nan_is_refused_by_its_place() -> None:
    """A test that could not be made is not part of a family."""
    with pytest.raises(ConfigError, match="p_values: 1 of 2 are not finite, the first is number 1"):
        holm([0.5, np.nan])
