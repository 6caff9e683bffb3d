"""Time is split as the release says, and in proportion for callers in a hurry."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cascade.policy.budget import small_budget_ms
from cascade.policy.release import Budgets

_BUDGETS = Budgets(total_ms=100, small_ms=40, large_ms=60, reserve_ms=10)


@pytest.mark.parametrize(
    ("usable_ms", "large_follows", "expected_ms"),
    [(90, True, 40), (500, True, 40), (45, True, 20), (0, True, 0), (45, False, 40), (90, False, 40)],
)
def test_the_small_stage_gets_its_budget_or_its_share(
    usable_ms: float, large_follows: bool, expected_ms: float
) -> None:
    """The release's budget in the release's time, the same share of less, all of it where nothing follows."""
    assert small_budget_ms(_BUDGETS, usable_ms, large_follows=large_follows) == pytest.approx(expected_ms)


@given(st.floats(0, 1e4), st.floats(0, 1e4))
def test_less_time_never_means_a_longer_small_stage(one: float, other: float) -> None:
    """The budget grows with the time there is."""
    low, high = sorted((one, other))
    shorter = small_budget_ms(_BUDGETS, low, large_follows=True)
    assert shorter <= small_budget_ms(_BUDGETS, high, large_follows=True) <= _BUDGETS.small_ms
