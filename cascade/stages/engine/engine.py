"""One model and its queue: rounds of texts in, results out."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from cascade.errors import StageInvalidAnswer
from cascade.guard.deadline import Clock, Deadline
from cascade.stages.answers import InvalidAnswer
from cascade.stages.base import Congestion
from cascade.stages.engine.batching import Batching
from cascade.stages.engine.round import NotRun, Round, Unit
from cascade.stages.engine.tokens import Reader, Tokens
from cascade.stages.engine.workers import Workers
from cascade.telemetry.work import Ran

__all__ = ["Engine", "Model"]

Result = TypeVar("Result")


class Model(Protocol):
    """What runs inputs. Safe to call from several threads at once."""

    def run(self, inputs: Sequence[Tokens]) -> npt.NDArray[np.float64]:
        """Return the output for a batch; its first axis is the batch."""
        ...


class Engine(Generic[Result]):
    """Run the texts of rounds on a model, in batches over rounds, on threads that other engines share.

    ``reader`` turns text into inputs, ``answer`` the output of a batch into one result an input, or raises InvalidAnswer,
    and ``better`` picks the result that counts of a text in several inputs. With ``keeps_parts`` results are of use
    though their round is never whole. ``count_fault`` is told, by the thread, of what a model or tokenizer raised, and
    ``ran`` of each call of the model.
    """

    def __init__(
        self,
        model: Model,
        *,
        workers: Workers,
        batching: Batching,
        reader: Reader,
        answer: Callable[[npt.NDArray[np.float64], int], Sequence[Result]],
        better: Callable[[Result, Result], Result] = lambda first, second: first,
        keeps_parts: bool = False,
        count_fault: Callable[[BaseException], None] = lambda error: None,
        ran: Callable[[Ran], None] = lambda call: None,
    ) -> None:
        self._model = model
        self._workers = workers
        self._reader = reader
        self._answer = answer
        self._better = better
        self._count_fault = count_fault
        self._ran = ran
        self._lane = workers.lane(batching, self._work, keeps_parts=keeps_parts)

    @contextmanager
    def round(self, query: str, texts: Sequence[str], deadline: Deadline) -> Iterator[Round[Result]]:
        """Have texts run beside a query, until the block is left: what has not begun then is dropped.

        Raises NotRun where there is no room.
        """
        round_ = Round(query, texts, deadline, better=self._better)
        if texts:
            self._workers.enter(self._lane, round_)
        try:
            yield round_
        finally:
            self._workers.leave(self._lane, round_)

    def congestion(self, clock: Clock) -> Congestion:
        """Return the pairs that wait and run now, and how long the first in line has waited."""
        with self._workers.lock:
            waited_s = self._lane.oldest_wait_s(self._workers.clock())
            return Congestion(clock(), waited_s * 1000, self._lane.waiting, self._lane.running)

    def close(self) -> None:
        """End what waits."""
        self._workers.remove(self._lane)

    def _work(self, units: Sequence[Unit]) -> None:
        """Do what a thread was given. What goes wrong in a call of several rounds is done again for each: it ends its own."""
        try:
            if units[0].tokens is None:
                self._read(units[0])
            else:
                self._run(units)
        except BaseException as error:  # noqa: BLE001 - the boundary of a thread; a tokenizer that panics is no Exception
            rounds = dict.fromkeys(unit.round for unit in units)
            if len(rounds) > 1:
                for round_ in rounds:
                    self._work([unit for unit in units if unit.round is round_])
                return
            self._fail(units, error.fault if isinstance(error, InvalidAnswer) else "model_failed")
            if not isinstance(error, InvalidAnswer):
                self._count_fault(error)

    def _read(self, unit: Unit) -> None:
        round_, began = unit.round, self._workers.clock()
        texts = round_.texts
        if round_.over or not texts:
            return
        if round_.shared is None:
            round_.shared = self._reader.query(round_.query)
        reading = self._reader.read(round_.shared, texts[unit.position])
        ended = self._workers.clock()
        with self._workers.lock:
            round_.read(unit.position, reading, thread=threading.get_ident(), seconds=ended - began)
            self._workers.ready(self._lane, [Unit(round_, unit.position, ended, tokens) for tokens in reading.inputs])

    def _run(self, units: Sequence[Unit]) -> None:
        began = self._workers.clock()
        rounds: dict[Round[Any], list[Unit]] = {}
        for unit in units:
            rounds.setdefault(unit.round, []).append(unit)
        with self._workers.lock:
            for round_ in rounds:
                round_.runs(began)
        results = self._answer(self._model.run([unit.tokens for unit in units if unit.tokens is not None]), len(units))
        seconds = self._workers.clock() - began
        longest, tokens = max(unit.size for unit in units), sum(unit.size for unit in units)
        self._ran(Ran(len(units), tokens, longest * len(units) - tokens))
        with self._workers.lock:
            self._lane.ran(seconds, tokens)
            for round_, own in rounds.items():
                round_.ran(own, longest, thread=threading.get_ident(), seconds=seconds)
            for unit, result in zip(units, results, strict=True):
                if unit.round.answer(unit.position, result):
                    self._workers.end(self._lane, unit.round)

    def _fail(self, units: Sequence[Unit], code: str) -> None:
        with self._workers.lock:
            for unit in units:
                self._workers.end(self._lane, unit.round, NotRun(StageInvalidAnswer, code))
