"""Retries are a share of what was answered, whatever happens in which order."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cascade.guard.retry_budget import RetryBudget


@given(share=st.floats(0, 1), steps=st.lists(st.booleans(), max_size=400))
def test_b1_retries_never_exceed_their_share_of_the_answered_calls(*, share: float, steps: list[bool]) -> None:
    """A true step is an answered call, a false one asks for a retry."""
    budget = RetryBudget(share)
    answered = retries = 0
    for is_answer in steps:
        if is_answer:
            budget.answered()
            answered += 1
        else:
            retries += budget.take()
        assert retries <= answered * share + 1e-6


def test_b1_ten_answered_calls_pay_for_one_retry() -> None:
    """Neither the ninth does nor is there a second."""
    budget = RetryBudget(0.1)
    for _ in range(9):
        budget.answered()
    assert not budget.take()
    budget.answered()
    assert budget.take()
    assert not budget.take()


def test_b1_a_long_quiet_time_saves_ten_retries_and_no_more() -> None:
    """What a healthy hour saved is not spent on one bad minute."""
    budget = RetryBudget(0.1)
    for _ in range(10_000):
        budget.answered()
    assert [budget.take() for _ in range(11)] == [True] * 10 + [False]


def test_a_share_of_zero_makes_no_retries() -> None:
    """Zero is a number: none are made."""
    budget = RetryBudget(0)
    for _ in range(1000):
        budget.answered()
    assert not budget.take()
