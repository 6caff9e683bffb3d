"""Scores that wait to be written."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping

from cascade.cache.store import WriteDrop
from cascade.cache.writes import Writes
from cascade.testing.clock import run_virtual
from tests.cache.arrange import keys_of


class _Sink:
    """Take what is written, as slowly as a test says, or fail."""

    def __init__(self, most: int = 1000) -> None:
        self.delay_s = 0.01
        self.fails = False
        self.written: list[int] = []
        self.dropped: Counter[WriteDrop] = Counter()
        self.writes = Writes(self._write, most, self._drop)

    async def _write(self, scores: Mapping[bytes, float]) -> None:
        await asyncio.sleep(self.delay_s)
        if self.fails:
            raise ConnectionError("away")
        self.written.append(len(scores))

    def _drop(self, why: WriteDrop, count: int) -> None:
        self.dropped[why] += count

    def put(self, count: int) -> None:
        """Have so many scores written."""
        self.writes.put(dict.fromkeys(keys_of(count), 0.5))


def test_scores_are_written_beside_many_at_once() -> None:
    """Nobody waits for it."""

    async def run() -> None:
        sink = _Sink()
        sink.writes.start()
        sink.put(450)
        assert sink.written == []
        assert len(sink.writes) == 450
        await asyncio.sleep(0.1)
        assert sink.written == [200, 200, 50]
        sink.put(1)
        await sink.writes.aclose()
        assert sink.written == [200, 200, 50, 1]
        assert not sink.dropped

    run_virtual(run())


def test_more_than_may_wait_are_dropped_and_counted() -> None:
    """The queue is bounded in scores."""

    async def run() -> None:
        sink = _Sink(most=100)
        sink.writes.start()
        sink.put(130)
        sink.put(10)
        assert sink.dropped == {WriteDrop.QUEUE: 40}
        await sink.writes.aclose()
        assert sink.written == [100]

    run_virtual(run())


def test_a_write_that_fails_costs_its_scores_alone() -> None:
    """The next ones are written."""

    async def run() -> None:
        sink = _Sink()
        sink.writes.start()
        sink.fails = True
        sink.put(10)
        await asyncio.sleep(0.1)
        sink.fails = False
        sink.put(3)
        await sink.writes.aclose()
        assert (sink.written, sink.dropped) == ([3], {WriteDrop.FAULT: 10})

    run_virtual(run())


def test_the_end_waits_a_second_at_most_for_what_is_being_written() -> None:
    """A Redis that hangs does not hold up a stop, and a queue that never began has none."""

    async def run() -> None:
        sink = _Sink()
        await sink.writes.aclose()
        sink.delay_s = 60.0
        sink.writes.start()
        sink.put(1)
        await sink.writes.aclose()
        assert asyncio.get_running_loop().time() == 1.0
        assert sink.written == []

    run_virtual(run())
