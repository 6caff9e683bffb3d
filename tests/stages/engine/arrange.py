"""A model that does what it is told: scores that are a sum of ids, runs that are seen, held up or made to fail."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from cascade.guard.deadline import Deadline
from cascade.stages.engine.batching import ONE_PAIR, Batching
from cascade.stages.engine.engine import Engine
from cascade.stages.engine.lane import Lane
from cascade.stages.engine.round import Round, Unit
from cascade.stages.engine.tokens import Reading, Tokens
from cascade.stages.engine.workers import Workers

__all__ = [
    "LetterReader",
    "Queue",
    "SetClock",
    "SumModel",
    "deadline_in",
    "engine_of",
    "run_on",
    "score_of",
    "tokens_of",
    "until",
]


class SetClock:
    """A clock that stands until it is put forward."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        """Put it forward."""
        self.now += seconds


def tokens_of(text: str) -> Tokens:
    """Return one id a letter."""
    ids = np.array([ord(letter) for letter in text] or [0], dtype=np.int64)
    return Tokens(ids, np.zeros_like(ids))


def score_of(query: str, document: str) -> float:
    """Return what `SumModel` scores a pair that `LetterReader` read."""
    return float(sum(map(ord, query + document)))


class LetterReader:
    """Read one id a letter; a bar in a document begins a further window."""

    def query(self, text: str) -> str:
        """Return the text."""
        return text

    def read(self, query: Any, document: str) -> Reading:
        """Return the windows of a pair."""
        if document == "unreadable":
            raise ValueError(document)
        return Reading([tokens_of(query + part) for part in document.split("|")], truncated=document.endswith("~"))


class SumModel:
    """Score an input by the sum of its ids.

    ``batches`` holds the inputs of each run as text. While ``gate`` is cleared, runs wait at it: ``entered`` counts those
    that came so far. A run of ``poison`` fails.
    """

    def __init__(self, poison: str = "\0") -> None:
        self.batches: list[list[str]] = []
        self.gate = threading.Event()
        self.gate.set()
        self.entered = threading.Semaphore(0)
        self._poison = poison

    def run(self, inputs: Sequence[Tokens]) -> npt.NDArray[np.float64]:
        """Return one score an input."""
        texts = ["".join(map(chr, each.ids.tolist())) for each in inputs]
        self.batches.append(texts)
        self.entered.release()
        self.gate.wait(30)
        if any(self._poison in text for text in texts):
            raise RuntimeError(texts)
        return np.array([[float(each.ids.sum())] for each in inputs])


def engine_of(model: SumModel, workers: Workers, batching: Batching = ONE_PAIR, **more: Any) -> Engine[float]:
    """Return an engine of a model; of several windows the best counts."""
    return Engine(
        model,
        workers=workers,
        batching=batching,
        reader=LetterReader(),
        answer=lambda output, pairs: output.reshape(-1).tolist(),
        better=max,
        **more,
    )


def deadline_in(seconds: float = 60.0) -> Deadline:
    """Return a deadline on the real clock."""
    return Deadline.after_ms(seconds * 1000, time.monotonic)


async def run_on(
    engine: Engine[float], texts: Sequence[str], query: str = "q", deadline: Deadline | None = None
) -> list[float]:
    """Have texts scored, a minute being enough where no deadline is given."""
    with engine.round(query, texts, deadline or deadline_in()) as round_:
        return await round_.done()


async def until(true: Callable[[], bool]) -> None:
    """Wait for what threads bring about, for half a minute at most."""
    for _ in range(30_000):
        if true():
            return
        await asyncio.sleep(0.001)
    raise AssertionError("it never came true")


def _nothing(units: Sequence[Unit]) -> None:
    """Run nothing: the tests look at what is taken."""


class Queue:
    """A lane with a clock, and rounds of inputs that need no reading."""

    def __init__(self, batching: Batching, **more: Any) -> None:
        self.clock = SetClock()
        self.settled: list[Round[Any]] = []
        self.lane = Lane(batching, _nothing, settle=self.settled.append, **more)

    def enter(self, texts: Sequence[str], deadline_ms: float = 1000.0) -> Round[float]:
        round_: Round[float] = Round("", texts, Deadline.after_ms(deadline_ms, self.clock), better=max)
        self.lane.enter(round_, self.clock())
        return round_

    def read(self, units: Sequence[Unit]) -> None:
        for unit in units:
            self.lane.running -= 1
            if not unit.round.over:
                text = unit.round.texts[unit.position]
                self.lane.ready([Unit(unit.round, unit.position, self.clock(), tokens_of(text))])

    def take(self) -> list[Unit]:
        return self.lane.take(self.clock()) if self.lane.most_urgent(self.clock()) is not None else []

    def taken(self) -> list[list[tuple[Round[Any], int]]]:
        """Take all that may be run now, reading what must be read, and return each batch's rounds and positions."""
        batches = []
        while units := self.take():
            if units[0].tokens is None:
                self.read(units)
            else:
                batches.append([(unit.round, unit.position) for unit in units])
        return batches
