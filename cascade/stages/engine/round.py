"""The work of one request at a model: what it waits for, what came of it, and what it cost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from cascade.errors import StageError
from cascade.guard.aside import is_aside
from cascade.guard.deadline import Deadline
from cascade.stages.engine.tokens import Reading, Tokens
from cascade.telemetry.work import Counted, ReadPairs
from cascade.types import StageCost

__all__ = ["NotRun", "Round", "Unit"]

Result = TypeVar("Result")


class NotRun(Exception):
    """Say that a round is not run, or not to its end, and as which error of a stage that counts. It holds no text."""

    def __init__(self, kind: type[StageError], code: str) -> None:
        super().__init__(code)
        self.kind = kind
        self.code = code


class Unit:
    """A text of a round to be read, or once ``tokens`` is set, one input of it to be run. ``since`` is when it came."""

    __slots__ = ("position", "round", "since", "tokens")

    def __init__(self, round_: Round[Any], position: int, since: float, tokens: Tokens | None = None) -> None:
        self.round = round_
        self.position = position
        self.since = since
        self.tokens = tokens

    @property
    def size(self) -> int:
        """Return the tokens of an input, 0 of a text that is still to be read."""
        return 0 if self.tokens is None else len(self.tokens)


class Round(Generic[Result]):
    """Texts beside one query, and their results by position: all of them, or a fault.

    Threads change it under the lock of the workers. ``begun`` holds the positions that have been run, or are,
    ``tokens_left`` counts what has been read and is still to be run, and ``over`` says that nobody waits any more. Of a text in several inputs ``better`` is asked for the result that counts.
    """

    def __init__(
        self, query: str, texts: Sequence[str], deadline: Deadline, *, better: Callable[[Result, Result], Result]
    ) -> None:
        self.query = query
        self.texts = texts
        self.deadline = deadline
        self.urgency = (is_aside(), deadline.at)
        self.shared: Any = None
        self.results: list[Result | None] = [None] * len(texts)
        self.begun: set[int] = set()
        self.fault: NotRun | None = None
        self.over = not texts
        self.waiting = len(texts)
        self.tokens_left = 0
        self.submitted = 0.0
        self._better = better
        self._inputs_left = [1] * len(texts)
        self._left = len(texts)
        self._loop = asyncio.get_running_loop()
        self._settled = self._loop.create_future()
        self._calls = self._tokens = self._padding = self._windows = self._truncated = 0
        self._tokenize_s = self._compute_s = 0.0
        self._queue_s: float | None = None
        self._threads: set[int] = set()
        self._whole: dict[int, int] = {}
        self._inputs: dict[int, int] = {}
        self._query_tokens: int | None = None
        if self.over:
            self._queue_s = 0.0
            self._settled.set_result(None)

    async def done(self) -> list[Result]:
        """Return the results, one a text in the order given, once all are there. Raises NotRun."""
        await self._settled
        if self.fault is not None:
            raise self.fault
        return [result for result in self.results if result is not None]

    def read(self, position: int, reading: Reading, *, thread: int, seconds: float) -> None:
        """Take in what a text is read as."""
        self._inputs_left[position] = len(reading.inputs)
        self._inputs[position] = len(reading.inputs)
        self._whole[position] = sum(map(len, reading.inputs)) if reading.whole is None else reading.whole
        self._query_tokens = reading.query
        self._windows += len(reading.inputs) - 1
        self._truncated += reading.truncated
        self._tokenize_s += seconds
        self._threads.add(thread)

    def runs(self, began: float) -> None:
        """Note that a call for this round begins: the first ends its wait, of which reading its own texts is no part."""
        if self._queue_s is None:
            read_s = self._tokenize_s / (len(self._threads) or 1)
            self._queue_s = max(0.0, began - self.submitted - read_s)

    def ran(self, units: Sequence[Unit], longest: int, *, thread: int, seconds: float) -> None:
        """Count a call that inputs of this round had part in, padded to ``longest``."""
        tokens = sum(unit.size for unit in units)
        self._calls += 1
        self._tokens += tokens
        self._padding += longest * len(units) - tokens
        self._compute_s += seconds
        self._threads.add(thread)

    def answer(self, position: int, result: Result) -> bool:
        """Keep the result of one input; tell whether it was the last that the round waited for."""
        before = self.results[position]
        self.results[position] = result if before is None else self._better(before, result)
        self._inputs_left[position] -= 1
        if self._inputs_left[position]:
            return False
        self._left -= 1
        return not self._left

    def end(self, fault: NotRun | None = None) -> bool:
        """Let nothing more of it be run; tell whether it was not over before."""
        if self.over:
            return False
        self.over, self.fault = True, fault
        self.texts = ()
        return True

    def settle(self) -> None:
        """Wake who waits, from the thread of the event loop."""
        if not self._settled.done():
            self._settled.set_result(None)

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """Return the loop that the waiter is on."""
        return self._loop

    def read_as(self, queries: int) -> ReadPairs:
        """Return what its texts were read as; the first ``queries`` are no documents, and the query's tokens are theirs."""
        documents = [position for position in self._whole if position >= queries]
        return ReadPairs(
            Counted.MEASURED,
            self._whole.get(0) if queries else self._query_tokens,
            [self._whole[position] for position in documents],
            [self._inputs[position] for position in documents],
        )

    def cost(self) -> StageCost:
        """Return what has been run for it, whole calls also where other rounds had part in them.

        Times are those on the round's path: sums over the threads that shared them, and the wait until the first call.
        """
        threads = len(self._threads) or 1
        return StageCost(
            calls=self._calls,
            tokens=self._tokens,
            tokens_estimated=False,
            truncated=self._truncated,
            tokenize_ms=self._tokenize_s * 1000 / threads,
            queue_ms=(self._queue_s or 0.0) * 1000,
            compute_ms=self._compute_s * 1000 / threads,
            windows=self._windows,
            padding=self._padding,
        )
