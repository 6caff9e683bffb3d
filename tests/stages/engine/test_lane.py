"""The queue of one model: deadline first, full batches of about one length, nothing that nobody waits for."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cascade.errors import StageTimeout
from cascade.guard.aside import aside
from cascade.stages.engine.batching import ONE_PAIR, Batching, bucket_of
from cascade.stages.engine.round import Unit

from .arrange import Queue, tokens_of


def _on_a_loop(test: Callable[[], None]) -> None:
    async def run() -> None:
        test()

    asyncio.run(run())


async def test_the_earliest_deadline_is_run_first_whoever_came_first() -> None:
    """A round that came later with less time left goes before all that waits of others."""
    queue = Queue(ONE_PAIR)
    patient = queue.enter(["aa", "bb"], 900)
    hurried = queue.enter(["cc", "dd"], 300)
    assert queue.taken() == [[(hurried, 0)], [(hurried, 1)], [(patient, 0)], [(patient, 1)]]


async def test_of_one_round_the_longest_text_is_run_first() -> None:
    """Threads that share a round end together where the long pairs do not come last."""
    queue = Queue(ONE_PAIR)
    round_ = queue.enter(["a", "aaaa", "aa", "aaa"])
    assert [position for ((_, position),) in queue.taken()] == [1, 3, 2, 0]
    assert round_.begun == {0, 1, 2, 3}


async def test_what_nobody_waits_for_comes_after_all_else() -> None:
    """A shadow's round does not go before an answer's, however little time it has."""
    queue = Queue(ONE_PAIR)
    with aside():
        shadow = queue.enter(["a"], 10)
    answer = queue.enter(["b"], 5000)
    assert queue.taken() == [[(answer, 0)], [(shadow, 0)]]


async def test_what_nobody_waits_for_is_in_no_batch_with_an_answer() -> None:
    """An answer's call is no longer for a shadow's pairs of the same length."""
    queue = Queue(Batching(1000, 8))
    with aside():
        shadow = queue.enter(["a" * 20, "b" * 20], 900)
    queue.read(queue.take())
    queue.read(queue.take())
    answer = queue.enter(["c" * 20], 900)
    assert queue.taken() == [[(answer, 0)], [(shadow, 0), (shadow, 1)]]


async def test_what_is_over_is_not_kept_behind_what_is_more_urgent() -> None:
    """Rounds that come and go while something more urgent waits take no more room than what waits, or a little."""
    queue = Queue(Batching(1000, 8))
    answer = queue.enter(["a" * 20] * 5, 900)
    queue.read(queue.take())
    for _ in range(2000):
        with aside():
            gone = queue.enter(["b", "c"], 100)
        gone.end()
        queue.lane.leave(gone)
    assert len(queue.lane._unread) <= 1024 + 4
    assert sorted(position for batch in queue.taken() for _, position in batch) == [0, 1, 2, 3, 4]
    assert not answer.over
    assert queue.lane.waiting == 0


async def test_a_batch_holds_pairs_of_several_rounds() -> None:
    """Pairs of about one length share a call, the most urgent first."""
    queue = Queue(Batching(1000, 4))
    patient = queue.enter(["a" * 20, "b" * 20, "c" * 20], 900)
    hurried = queue.enter(["d" * 20, "e" * 20], 300)
    first, second = queue.taken()
    assert first == [(hurried, 0), (hurried, 1)]  # read and run before the patient one was read
    assert second == [(patient, 0), (patient, 1), (patient, 2)]


async def test_a_batch_that_has_room_takes_the_next_round_with_it() -> None:
    """What has been read of a later round fills up the batch of an earlier one."""
    queue = Queue(Batching(1000, 4))
    patient = queue.enter(["a" * 20, "b" * 20, "c" * 20], 900)
    for _ in range(3):
        queue.read(queue.take())
    hurried = queue.enter(["d" * 20, "e" * 20], 300)
    assert queue.taken() == [[(hurried, 0), (hurried, 1), (patient, 0), (patient, 1)], [(patient, 2)]]


@given(
    st.lists(st.lists(st.integers(1, 90), min_size=1, max_size=12), min_size=1, max_size=5),
    st.integers(16, 300),
    st.integers(1, 9),
)
def test_batches_keep_their_bounds_and_lose_no_pair(rounds: list[list[int]], tokens: int, pairs: int) -> None:
    """Padded to its longest, no batch of several is over its tokens or pairs, nor mixes lengths; each pair is run once."""

    def check() -> None:
        queue = Queue(Batching(tokens, pairs))
        entered = [queue.enter(["x" * size for size in sizes], 1000 + 10 * n) for n, sizes in enumerate(rounds)]
        batches = []
        while units := queue.take():
            if units[0].tokens is None:
                queue.read(units)
                continue
            sizes = [unit.size for unit in units]
            assert len(units) == 1 or (len(units) <= pairs and len(units) * max(sizes) <= tokens)
            assert len({bucket_of(size) for size in sizes}) == 1
            batches += [(entered.index(unit.round), unit.position) for unit in units]
        assert sorted(batches) == [(n, place) for n, sizes in enumerate(rounds) for place in range(len(sizes))]
        assert queue.lane.waiting == 0

    _on_a_loop(check)


@given(st.integers(1, 600), st.integers(1, 600))
def test_inputs_of_a_bucket_are_padded_by_a_quarter_of_their_length_at_most(one: int, other: int) -> None:
    """Two lengths of one bucket are short both, or within a ratio of 1.25; a longer one is in no lower bucket."""
    shorter, longer = sorted((one, other))
    assert bucket_of(shorter) <= bucket_of(longer)
    if bucket_of(shorter) == bucket_of(longer) and longer > 16:
        assert longer <= 1.25 * shorter + 1


async def test_a_batch_with_room_waits_for_others_a_little() -> None:
    """With a wait a batch is run once it is full, or when its oldest pair has waited so long."""
    queue = Queue(Batching(1000, 3, 4.0))
    first = queue.enter(["a"], 500)
    queue.read(queue.take())
    assert queue.take() == []
    assert queue.lane.ripens_at(queue.clock()) == pytest.approx(0.004)
    queue.clock.advance(0.003)
    second = queue.enter(["b"], 500)
    queue.read(queue.take())
    assert queue.take() == []
    queue.clock.advance(0.0011)
    assert queue.taken() == [[(first, 0), (second, 0)]]
    third = queue.enter(["a", "b", "c"], 500)
    assert queue.taken() == [[(third, 0), (third, 1), (third, 2)]]


async def test_nobody_waits_for_others_whose_deadline_does_not_allow_it() -> None:
    """Where less is left than two calls take, a batch is run as it is."""
    queue = Queue(Batching(1000, 3, 8.0))
    queue.lane.ran(0.020, 2000)
    round_ = queue.enter(["a"], 45)
    queue.read(queue.take())
    assert queue.lane.ripens_at(queue.clock()) == pytest.approx(0.005)
    hurried = queue.enter(["b"], 40)
    assert queue.taken() == [[(hurried, 0), (round_, 0)]]


async def test_no_wait_is_as_little_as_none() -> None:
    """Zero is a legal wait: whatever there is, is run at once, and nothing ripens."""
    queue = Queue(Batching(1000, 3, 0.0))
    round_ = queue.enter(["a"], 500)
    assert queue.taken() == [[(round_, 0)]]
    assert queue.lane.ripens_at(queue.clock()) == math.inf


async def test_what_is_late_is_dropped_and_its_waiter_told() -> None:
    """A round past its deadline is not run: it ends as a timeout, and others go on."""
    queue = Queue(ONE_PAIR)
    late = queue.enter(["a", "b"], 100)
    other = queue.enter(["c"], 900)
    queue.clock.advance(0.1)
    assert queue.taken() == [[(other, 0)]]
    assert queue.settled == [late]
    assert late.fault is not None
    assert late.fault.kind is StageTimeout
    assert late.begun == set()
    assert queue.lane.waiting == 0


async def test_what_nobody_waits_for_any_more_is_dropped() -> None:
    """A round that is over takes no thread, and counts as waiting no longer."""
    queue = Queue(Batching(1000, 8))
    gone = queue.enter(["a", "b"], 100)
    queue.read(queue.take())
    other = queue.enter(["c"], 900)
    gone.end()
    queue.lane.leave(gone)
    assert queue.lane.waiting == 1
    assert queue.taken() == [[(other, 0)]]
    queue.lane.ready([Unit(gone, 1, 0.0, tokens_of("b"))])
    assert queue.take() == []


async def test_how_long_the_first_in_line_has_waited() -> None:
    """It is the age of the oldest round with work waiting, and nothing where none waits."""
    queue = Queue(ONE_PAIR)
    assert queue.lane.oldest_wait_s(queue.clock()) == 0
    queue.enter(["a"], 900)
    queue.clock.advance(0.25)
    queue.enter(["b"], 100)
    assert queue.lane.oldest_wait_s(queue.clock()) == pytest.approx(0.25)
    assert [position for batch in queue.taken() for _, position in batch] == [0, 0]
    assert queue.lane.oldest_wait_s(queue.clock()) == 0
