"""Where the boundary of a decision lies."""

from __future__ import annotations

import math

import numpy as np
import pytest

from cascade.policy.boundary import above, at_least, at_most, best_first


@pytest.mark.parametrize("bound", [0.1 + 0.2, 1e-6, 1.0, 1234.5])
def test_e9_a_tie_is_not_above_and_what_rounding_makes_of_it_is_not_either(bound: float) -> None:
    """The bound itself, and what lies a few last bits off it, is neither more nor less than it."""
    ties = np.array([bound, np.nextafter(bound, math.inf), np.nextafter(bound, 0.0), bound * (1 + 1e-12)])
    assert not above(ties, bound).any()
    for tie in ties.tolist():
        assert at_least(tie, bound)
        assert at_most(tie, bound)


@pytest.mark.parametrize("bound", [0.3, 1e-6, 1234.5])
def test_e9_what_differs_by_more_than_rounding_is_told_apart(bound: float) -> None:
    """A millionth more is above, a millionth less is below."""
    more, less = bound * (1 + 1e-6), bound * (1 - 1e-6)
    assert above(np.array([more, less]), bound).tolist() == [True, False]
    assert (at_least(more, bound), at_least(less, bound)) == (True, False)
    assert (at_most(more, bound), at_most(less, bound)) == (False, True)


def test_nothing_is_above_where_nothing_is_known() -> None:
    """NaN exceeds no bound, and minus infinity, which stands for what cannot be sent, neither."""
    assert above(np.array([math.nan, -math.inf, math.inf]), 0.0).tolist() == [False, False, True]


def test_e3_a_noisy_value_has_to_clear_the_bound_by_its_noise() -> None:
    """Noise counts against the decision on either side, and only there."""
    assert at_least(0.8, 0.7, noise=0.1)
    assert not at_least(0.8, 0.7, noise=0.11)
    assert at_most(0.6, 0.7, noise=0.1)
    assert not at_most(0.6, 0.7, noise=0.11)


def test_the_order_of_values_knows_no_rounding() -> None:
    """The highest comes first; what differs in the last bits keeps the order given; minus infinity is last."""
    values = np.array([-math.inf, 0.3, 0.1 + 0.2, 0.5, 0.3, 0.5 - 1e-15])
    assert best_first(values).tolist() == [3, 5, 1, 2, 4, 0]
