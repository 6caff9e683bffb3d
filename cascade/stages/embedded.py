"""What stages inside the sidecar share: loading, the engine that runs the model, time, and checking scores."""

from __future__ import annotations

import asyncio
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final, Generic, TypeVar

from cascade.errors import ConfigError, StageError, StageInvalidAnswer, StageTimeout
from cascade.guard.deadline import Clock, Deadline
from cascade.guard.events import Guarded
from cascade.guard.expected_ms import ExpectedMs
from cascade.guard.own_calls import is_of_traffic
from cascade.policy.release import StageBase
from cascade.stages.base import Congestion, Observed
from cascade.stages.cores import cpu_instructions, has_int8_instructions
from cascade.stages.engine.engine import Engine
from cascade.stages.engine.round import NotRun, Round
from cascade.stages.engine.workers import Workers
from cascade.stages.fingerprint import fingerprint_of
from cascade.stages.onnx_model import DEFAULT_SESSION, SessionOptions
from cascade.stages.serializers import serializer
from cascade.telemetry.work import NO_WORK_EVENTS, ReadPairs, WorkEvents
from cascade.text import Text
from cascade.tokens import MOST_CHARACTERS_PER_TOKEN, beginning_of
from cascade.types import Exclusion, Fingerprint, ScoreSpace, StageCost, StageScores

__all__ = ["EmbeddedStage", "Work"]

Result = TypeVar("Result")

_STATIC_INT8: Final = "static-int8"
"""The quantization that a CPU needs instructions for."""


class Work(Generic[Result]):
    """What one call of a stage asks of its engine.

    ``begun`` counts the documents that have been run, or are; ``read`` is what they were read as, None unless all were run.
    ``queue_ms`` is how long they waited until the first was, or nobody waited any more.
    """

    def __init__(self, engine: Engine[Result], deadline: Deadline) -> None:
        self._engine = engine
        self._deadline = deadline
        self.begun = 0
        self.read: ReadPairs | None = None
        self.queue_ms: float | None = None

    @contextmanager
    def round(self, query: str, texts: Sequence[str], *, queries: int = 0) -> Iterator[Round[Result]]:
        """Have texts run beside a query until the block is left; the first ``queries`` are no documents. Raises NotRun."""
        round_: Round[Result] | None = None
        try:
            with self._engine.round(query, texts, self._deadline) as round_:
                yield round_
            self.read = round_.read_as(queries)  # whole: of one that is given up, threads may still be reading
        finally:
            if round_ is not None:
                self.begun = sum(position >= queries for position in round_.begun)
                self.queue_ms = round_.cost().queue_ms


class EmbeddedStage(ABC, Generic[Result]):
    """Run a model on the sidecar's own cores, by threads that embedded stages share.

    Cancelling, or a deadline, drops the calls that have not begun; one that runs ends by itself. ``count_fault`` is told of
    what a model raised, ``events`` of what is read and run, and ``session`` is how it is run.
    """

    def __init__(
        self,
        name: str,
        spec: StageBase,
        workers: Workers,
        clock: Clock,
        count_fault: Callable[[BaseException], None] = lambda error: None,
        *,
        session: SessionOptions = DEFAULT_SESSION,
        events: WorkEvents = NO_WORK_EVENTS,
    ) -> None:
        self._name = name
        self._spec = spec
        self._workers = workers
        self._clock = clock
        self._count_fault = count_fault
        self._session = session
        self._events = events
        self._serializer = serializer(spec.serializer)
        if self._serializer.owns_template:
            raise ConfigError(f"{name}: serializer: an embedded model cuts long pairs, and with them a template's end")
        self._fingerprint = fingerprint_of(spec, self._serializer)
        self._engine: Engine[Result] | None = None
        self._weights_sha256: str | None = None
        self._most_characters = spec.max_length * MOST_CHARACTERS_PER_TOKEN
        self.expected = ExpectedMs(clock)

    @abstractmethod
    def _load(self) -> Engine[Result]:
        """Return the engine, its model loaded and checked; tell of its files. It takes a while. Raises ConfigError."""

    @abstractmethod
    async def _score(
        self, work: Work[Result], query: str, texts: Mapping[int, str]
    ) -> tuple[dict[int, float], StageCost]:
        """Return the score of each text by its position, and what they cost. Raises NotRun."""

    @property
    def fingerprint(self) -> Fingerprint:
        return self._fingerprint

    @property
    def space(self) -> ScoreSpace:
        return self._spec.score_space

    @property
    def observed(self) -> Observed | None:
        if self._engine is None:
            return None
        return Observed(model=self._spec.model, max_length=self._spec.max_length, weights_sha256=self._weights_sha256)

    @property
    def unusable(self) -> str | None:
        return None

    @property
    def congestion(self) -> Congestion | None:
        return None if self._engine is None else self._engine.congestion(self._clock)

    @property
    def guarded(self) -> Guarded | None:
        return None

    async def returned(self) -> None:
        await asyncio.Event().wait()  # it is never lost

    @property
    def takes_instruction(self) -> bool:
        return False

    @property
    def is_listwise(self) -> bool:
        return False

    @property
    def is_identified(self) -> bool:
        return self._engine is not None

    async def start(self) -> None:
        """Load the model, in a thread of its own: rounds of other stages go on meanwhile. Raises ConfigError."""
        if self._spec.quantization == _STATIC_INT8 and not has_int8_instructions(cpu_instructions()):
            raise ConfigError(
                f"{self._name}: quantization: static-int8 needs a CPU with VNNI, or on ARM dotprod, and this one is not "
                "known to have it; use float32 weights here"
            )
        try:
            self._engine = await asyncio.to_thread(self._load)
        except ConfigError as error:
            raise ConfigError(f"{self._name}: {error}") from None

    async def look_again(self) -> bool:
        return self._engine is not None

    async def aclose(self) -> None:
        if self._engine is not None:
            self._engine.close()
        self._engine = None

    async def score(
        self,
        query: Text,
        documents: Sequence[Text],
        *,
        deadline: Deadline,
        call_id: str,
        instruction: Text | None = None,
    ) -> StageScores:
        started, budget_ms = self._clock(), deadline.remaining_ms()
        if self._engine is None:
            raise RuntimeError("a stage is started before it scores")
        texts = {
            position: self._serializer.document(beginning_of(document.reveal(), self._most_characters))
            for position, document in enumerate(documents)
            if not document.is_blank
        }
        work = Work(self._engine, deadline)
        kind: type[StageError]
        try:
            async with deadline.timeout():
                written = self._serializer.query(beginning_of(query.reveal(), self._most_characters))
                scores, cost = await self._score(work, written, texts)
            if all(map(math.isfinite, scores.values())):
                if work.read is not None and is_of_traffic():
                    self._events.read(work.read)
                return StageScores(
                    tuple(scores.get(position) for position in range(len(documents))),
                    {position: Exclusion.BLANK for position in range(len(documents)) if position not in texts},
                    cost,
                )
            kind, code = StageInvalidAnswer, "not_a_number"
        except TimeoutError:
            kind, code = StageTimeout, "deadline"
        except NotRun as fault:
            kind, code = fault.kind, fault.code
        # outside, so that no error is chained whose frames hold text
        elapsed_ms = (self._clock() - started) * 1000
        queue_ms = work.queue_ms if kind is StageTimeout else None
        raise kind(self._name, code, elapsed_ms=elapsed_ms, budget_ms=budget_ms, sent=work.begun, queue_ms=queue_ms)
