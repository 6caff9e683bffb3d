"""A server that is behind is told from one that does not answer."""

from __future__ import annotations

from cascade.guard.answering import Answering


def test_a_call_behind_others_that_are_answered_stands_in_a_queue() -> None:
    """First come, first served: those before it are answered while it waits."""
    answering = Answering()
    first, second = answering.leaves(0.0), answering.leaves(0.1)
    assert not answering.is_queued(second)
    answering.answered(first, 20)
    assert answering.is_queued(second)
    assert (answering.texts_since(first), answering.texts_since(second)) == (20, 20)


def test_a_call_that_nobody_was_answered_beside_is_owed_its_answer() -> None:
    """What was answered before it left is no sign of life."""
    answering = Answering()
    answering.answered(answering.leaves(0.0), 20)
    alone = answering.leaves(0.5)
    assert not answering.is_queued(alone)
    assert answering.texts_since(alone) == 0


def test_a_call_that_a_later_one_overtook_is_owed_its_answer() -> None:
    """One of two servers behind an address is gone: the other goes on answering."""
    answering = Answering()
    before, lost, after = (answering.leaves(moment) for moment in (0.0, 0.1, 0.2))
    answering.answered(before, 20)
    assert answering.is_queued(lost)
    answering.answered(after, 20)
    assert not answering.is_queued(lost)


def test_what_left_before_a_queue_was_known_may_be_overtaken() -> None:
    """It was sent under a limit that was too wide; what leaves from then on is bounded for the queue."""
    answering = Answering()
    first, second = answering.leaves(0.8), answering.leaves(0.9)
    answering.fell_behind(1.0)
    assert not answering.is_queued(first)
    answering.answered(second, 20)
    assert answering.is_queued(first)
    third, fourth = answering.leaves(1.0), answering.leaves(1.1)
    answering.answered(fourth, 20)
    assert not answering.is_queued(third)
