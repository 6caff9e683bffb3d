"""A server that is behind is told from one that does not answer."""

from __future__ import annotations

import pytest

from cascade.guard.answering import Answering


def test_a_call_behind_others_that_are_answered_stands_in_a_queue() -> None:
    """First come, first served: those before it are answered while it waits."""
    answering = Answering()
    first, second = answering.leaves(0.0), answering.leaves(0.1)
    assert not answering.is_queued(second, 0.2)
    answering.answered(first, 20, 0.2)
    assert answering.is_queued(second, 0.9)
    assert (answering.texts_since(first), answering.texts_since(second)) == (20, 20)


def test_a_call_that_nobody_was_answered_beside_is_owed_its_answer() -> None:
    """What was answered before it left is no sign of life."""
    answering = Answering()
    answering.answered(answering.leaves(0.0), 20, 0.4)
    alone = answering.leaves(0.5)
    assert not answering.is_queued(alone, 0.9)
    assert answering.texts_since(alone) == 0


def test_a_call_that_a_later_one_overtook_is_owed_its_answer() -> None:
    """One of two servers behind an address is gone: the other goes on answering, and soon."""
    answering = Answering()
    before, lost, after = (answering.leaves(moment) for moment in (0.0, 0.1, 0.2))
    answering.answered(before, 20, 0.25)
    assert answering.is_queued(lost, 0.3)
    answering.answered(after, 20, 0.3)
    assert not answering.is_queued(lost, 0.6)


@pytest.mark.parametrize(("waited_s", "queued"), [(0.3, True), (0.44, True), (0.46, False)])
def test_a_call_is_queued_where_those_that_overtook_it_took_nearly_as_long(waited_s: float, queued: bool) -> None:
    """Replicas behind one address have queues of different length: 0.3 s in the mean are two thirds of 0.45 s."""
    answering = Answering()
    answering.answered(answering.leaves(0.0), 20, 0.01)
    call = answering.leaves(1.0)
    others = [answering.leaves(1.0), answering.leaves(1.0)]
    answering.answered(others[0], 20, 1.25)
    answering.answered(others[1], 20, 1.35)
    assert answering.is_queued(call, 1.0 + waited_s) is queued


def test_a_call_of_its_own_round_that_was_answered_makes_no_queue() -> None:
    """Beside another round's it does not hide that one."""
    answering = Answering()
    other, sibling, call = (answering.leaves(moment) for moment in (0.0, 0.1, 0.1))
    answering.answered(sibling, 20, 0.2)
    assert not answering.is_queued(call, 0.25, own_texts=20)
    answering.answered(other, 5, 0.25)
    assert answering.is_queued(call, 0.25, own_texts=20)


def test_what_left_before_a_queue_was_known_may_be_overtaken() -> None:
    """It was sent under a limit that was too wide; what leaves from then on is bounded for the queue."""
    answering = Answering()
    first, second = answering.leaves(0.8), answering.leaves(0.9)
    answering.fell_behind(1.0)
    assert not answering.is_queued(first, 1.1)
    answering.answered(second, 20, 1.0)
    assert answering.is_queued(first, 2.0)
    third, fourth = answering.leaves(1.0), answering.leaves(1.1)
    answering.answered(fourth, 20, 1.2)
    assert not answering.is_queued(third, 1.5)
