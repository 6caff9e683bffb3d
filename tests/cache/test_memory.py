"""Scores in the memory of the process."""

from __future__ import annotations

import gc
import os
import tracemalloc
from collections import Counter
from collections.abc import Mapping
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cascade.cache.memory import ENTRY_BYTES, MemoryStore
from cascade.cache.store import LostReason
from cascade.guard.deadline import Deadline
from cascade.testing.clock import run_virtual
from tests.cache.arrange import keys_of


class _Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class _Store:
    """A store of so many scores, on a clock of its own."""

    def __init__(self, most: int, ttl_s: float = 60.0) -> None:
        self.clock = _Clock()
        self.lost: Counter[LostReason] = Counter()
        self.store = MemoryStore(most * ENTRY_BYTES, ttl_s, self.clock, self._lose)

    def _lose(self, why: LostReason, count: int) -> None:
        self.lost[why] += count

    def put(self, *numbers: int, score: float = 0.5) -> None:
        """Keep the scores of some keys."""
        self.store.put({keys_of(number + 1)[number]: score for number in numbers})

    def get(self, *numbers: int, use: bool = True) -> dict[int, float]:
        """Return what is kept of some keys."""
        keys = {keys_of(number + 1)[number]: number for number in numbers}
        found = run_virtual(self.store.get(list(keys), Deadline(0.0, self.clock), use=use))
        assert not found.faults
        return {keys[key]: score for key, score in found.scores.items()}


def test_what_is_kept_is_found_until_it_is_too_old() -> None:
    """Age counts from when a score was kept, however often it is used; one that is too old takes no room any more."""
    store = _Store(10, ttl_s=5.0)
    store.put(1, 2, score=0.25)
    store.clock.now = 4.9
    assert store.get(1, 2, 3) == {1: 0.25, 2: 0.25}
    store.clock.now = 5.0
    assert store.get(1, 2) == {}
    assert len(store.store) == 0
    assert store.lost == {LostReason.AGE: 2}


def test_a_score_that_is_kept_again_is_the_newer_one() -> None:
    """And it is as young as that."""
    store = _Store(10, ttl_s=5.0)
    store.put(1, score=0.25)
    store.get(1)
    store.clock.now = 3.0
    store.put(1, score=0.75)
    store.clock.now = 7.0
    assert store.get(1) == {1: 0.75}
    assert len(store.store) == 1


def test_what_is_not_used_again_goes_first() -> None:
    """A scan of keys that never come back leaves what is used where it is."""
    store = _Store(10)
    store.put(1, 2, 3)
    store.get(1, 2)
    store.put(*range(100, 200))
    assert store.get(1, 2, 3) == {1: 0.5, 2: 0.5}
    assert store.lost[LostReason.ROOM] == 93
    assert len(store.store) == 10


def test_what_is_looked_at_and_not_used_is_let_go_like_the_rest() -> None:
    """The shadow reads so: it keeps nothing longer than traffic does."""
    store = _Store(10)
    store.put(1, 2)
    store.get(1, 2, use=False)
    store.put(*range(100, 110))
    assert store.get(1, 2) == {}


def test_among_what_is_used_the_longest_unused_goes_first() -> None:
    """It goes back among the new, and is let go there unless it is used once more."""
    store = _Store(10)
    store.put(*range(8))
    store.get(*range(8))
    store.get(0)
    store.put(20, 21)
    store.get(20)
    assert store.get(1, use=False) == {1: 0.5}
    store.put(*range(30, 40))
    assert sorted(store.get(*range(8), 20)) == [0, 2, 3, 4, 5, 6, 7, 20]


@given(
    st.lists(
        st.tuples(
            st.sampled_from(("put", "get", "look", "wait")), st.lists(st.integers(0, 40), min_size=1, max_size=8)
        ),
        max_size=60,
    ),
    st.integers(1, 20),
)
def test_it_never_holds_more_than_it_may_nor_answers_what_was_not_kept(
    steps: list[tuple[str, list[int]]], most: int
) -> None:
    """Whatever comes, the bound holds, and each score is the last that was kept under its key, and young enough."""
    store = _Store(most, ttl_s=3.0)
    kept: dict[int, tuple[float, float]] = {}
    for count, (what, numbers) in enumerate(steps):
        match what:
            case "put":
                store.put(*numbers, score=float(count))
                kept |= dict.fromkeys(numbers, (float(count), store.clock.now + 3.0))
            case "wait":
                store.clock.now += 1.0
            case _:
                for number, score in store.get(*numbers, use=what == "get").items():
                    assert score == kept[number][0]
                    assert kept[number][1] > store.clock.now
        assert len(store.store) <= most


async def _bytes_of(scores: Mapping[bytes, float], most: int) -> int:
    """Return what a store of so many scores takes, once these went through it."""
    store = MemoryStore(most * ENTRY_BYTES, 60.0, lambda: 0.0)
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        left = iter(scores.items())
        while batch := dict(islice(left, 50)):
            store.put({bytes(bytearray(key)): score + 0.0 for key, score in batch.items()})
            await store.get(list(batch)[:25], Deadline(0.0, lambda: 0.0))
        del batch, left
        gc.collect()
        return tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("most", [3000, 11_000, 22_000])
def test_the_bytes_that_it_counts_are_as_many_as_it_takes(most: int) -> None:
    """With all that lies around a score, also where its tables have just grown."""
    scores = {os.urandom(16): number + 0.5 for number in range(2 * most)}
    assert 0.4 * most * ENTRY_BYTES < run_virtual(_bytes_of(scores, most)) <= most * ENTRY_BYTES


def test_it_tells_how_much_it_holds_and_lets_go_of_it_at_the_end() -> None:
    """In scores and in bytes."""
    store = _Store(10)
    store.put(1, 2, 3)
    assert store.store.told() == {"kind": "memory", "scores": 3, "bytes": 3 * ENTRY_BYTES}

    async def run() -> None:
        await store.store.start()
        await store.store.aclose()

    run_virtual(run())
    assert store.store.told()["scores"] == 0
