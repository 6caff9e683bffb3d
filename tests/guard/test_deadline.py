"""Deadlines on a clock that the tests move."""

from __future__ import annotations

import asyncio

import pytest

from cascade.guard.deadline import Deadline
from cascade.testing.clock import run_virtual


def test_what_remains_shrinks_with_the_clock_and_never_below_zero() -> None:
    """A deadline tells the milliseconds left, zero once it has passed."""
    now = [10.0]
    deadline = Deadline.after_ms(90, lambda: now[0])
    assert deadline.remaining_ms() == pytest.approx(90)
    now[0] = 10.05
    assert deadline.remaining_ms() == pytest.approx(40)
    now[0] = 11.0
    assert deadline.remaining_ms() == 0.0


def test_a_reserve_moves_the_deadline_forward_by_its_length() -> None:
    """What is kept in reserve is no longer there to be used."""
    assert Deadline.after_ms(90, lambda: 0.0).earlier_by_ms(7).remaining_ms() == pytest.approx(83)


@pytest.mark.parametrize(("budget_ms", "left_ms"), [(30, 30), (90, 90), (500, 90)])
def test_a_budget_ends_at_the_sooner_of_itself_and_the_deadline(budget_ms: float, left_ms: float) -> None:
    """A stage's own budget never outlives the request's deadline."""
    assert Deadline.after_ms(90, lambda: 5.0).within_ms(budget_ms).remaining_ms() == pytest.approx(left_ms)


def test_the_scope_ends_work_at_the_deadline() -> None:
    """Work under way when the deadline passes is cancelled, and the scope raises TimeoutError."""

    async def late() -> float:
        loop = asyncio.get_running_loop()
        deadline = Deadline.after_ms(80, loop.time)
        with pytest.raises(TimeoutError):
            async with deadline.timeout():
                await asyncio.sleep(3600)
        return loop.time()

    assert run_virtual(late()) == pytest.approx(0.08)


def test_the_scope_lets_work_pass_that_is_in_time() -> None:
    """Work that ends before the deadline is not touched."""

    async def soon() -> float:
        loop = asyncio.get_running_loop()
        async with Deadline.after_ms(80, loop.time).timeout():
            await asyncio.sleep(0.079)
        return loop.time()

    assert run_virtual(soon()) == pytest.approx(0.079)


def test_the_scope_of_a_passed_deadline_ends_at_the_first_wait() -> None:
    """A deadline that has passed leaves no time at all."""

    async def over() -> float:
        loop = asyncio.get_running_loop()
        with pytest.raises(TimeoutError):
            async with Deadline.after_ms(-5, loop.time).timeout():
                await asyncio.sleep(3600)
        return loop.time()

    assert run_virtual(over()) == 0.0
