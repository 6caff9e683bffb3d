"""Rounds whose time runs out, or will: what becomes of them, and that all is counted right."""

from __future__ import annotations

import pytest

from cascade.errors import StageTimeout
from cascade.stages.engine.batching import ONE_PAIR, Batching

from .arrange import Queue


@pytest.mark.parametrize("keeps_parts", [False, True])
@pytest.mark.parametrize("deadline_ms", range(1, 60))
async def test_what_waits_is_counted_right_whenever_time_runs_out(
    monkeypatch: pytest.MonkeyPatch, deadline_ms: int, keeps_parts: bool
) -> None:
    """Also between two pairs of one batch, or two queues: nothing waits afterwards, and what was taken runs."""
    monkeypatch.setattr("cascade.stages.engine.lane._MOST_OVER", 0)
    queue = Queue(Batching(1000, 4, 2.0), keeps_parts=keeps_parts)
    round_ = queue.enter(["a" * 20] * 4, deadline_ms + 0.5)
    clock = queue.clock

    def ticking() -> float:
        clock.advance(0.001)
        return clock.now

    object.__setattr__(round_.deadline, "clock", ticking)
    batches = []
    while queue.lane.waiting > 0:
        batches += queue.taken()
        queue.lane.ripens_at(clock())
        clock.advance(0.001)
    assert (queue.lane.waiting, round_.waiting) == (0, 0)
    assert queue.lane.running == sum(map(len, batches))


@pytest.mark.parametrize(("threads", "whole"), [(1, False), (2, True)])
async def test_a_round_that_cannot_be_whole_ends_before_it_is_run(threads: int, whole: bool) -> None:
    """What its tokens take, at the pace of late, is more than its time on one thread, and less on two."""
    queue = Queue(ONE_PAIR, threads=threads)
    queue.lane.ran(0.010, 10)
    long = queue.enter(["x" * 50, "y" * 50, "z" * 50], 100)
    other = queue.enter(["w"], 900)
    expected = [[(long, 0)], [(long, 1)], [(long, 2)]] if whole else []
    assert queue.taken() == [*expected, [(other, 0)]]
    assert long.begun == ({0, 1, 2} if whole else set())
    assert queue.settled == ([] if whole else [long])
    if not whole:
        assert long.fault is not None
        assert (long.fault.kind, long.fault.code) == (StageTimeout, "no_time")
        assert queue.lane.waiting == 0


async def test_rounds_are_made_again_once_a_slow_call_is_past() -> None:
    """Where all rounds are dropped no call tells that the machine is quick again: each drop makes the next less sure."""
    queue = Queue(ONE_PAIR)
    queue.lane.ran(1.0, 10)
    made = []
    for _ in range(100):
        queue.enter(["x" * 50], 500)
        made.append(bool(queue.taken()))
    assert made[0] is False
    assert made[-1] is True
    assert made == sorted(made)


async def test_parts_that_are_of_use_are_made_of_rounds_that_cannot_be_whole() -> None:
    """Where they are kept, as many are run as there is time for, each as soon as it is read."""
    queue = Queue(ONE_PAIR, keeps_parts=True)
    queue.lane.ran(0.010, 10)
    round_ = queue.enter(["x" * 50, "y" * 50, "z" * 50], 100)
    queue.read(queue.take())
    assert [(unit.round, unit.position, unit.size) for unit in queue.take()] == [(round_, 0, 50)]
    assert not round_.over
