"""What stages inside the sidecar share: loading, calls in the pool and their cost, time, and checking scores."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt

from cascade.errors import ConfigError, StageError, StageInvalidAnswer, StageTimeout
from cascade.guard.deadline import Clock, Deadline
from cascade.guard.events import Guarded
from cascade.guard.expected_ms import ExpectedMs
from cascade.policy.release import StageBase
from cascade.stages.answers import InvalidAnswer
from cascade.stages.base import Congestion, Observed
from cascade.stages.fingerprint import fingerprint_of
from cascade.stages.onnx_model import OnnxModel
from cascade.stages.serializers import serializer
from cascade.text import Text
from cascade.tokens import MOST_CHARACTERS_PER_TOKEN, beginning_of
from cascade.types import Exclusion, Fingerprint, ScoreSpace, StageCost, StageScores

__all__ = ["Call", "Calls", "EmbeddedStage", "cost_of"]

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Call(Generic[Result]):
    """One call of the model: what came of it, what it read, and its time by the thread that ran it."""

    result: Result
    tokens: int
    truncated: int
    thread: int
    queue_s: float
    tokenize_s: float
    compute_s: float


class Calls:
    """The calls of one round. ``begun`` counts the documents whose call a thread has taken up."""

    def __init__(self, model: OnnxModel, pool: ThreadPoolExecutor) -> None:
        self._model = model
        self._pool = pool
        self._submitted = time.monotonic()
        self._begun: list[int] = []

    @property
    def begun(self) -> int:
        return sum(self._begun)

    def submit(
        self,
        inputs: Sequence[tuple[str, str | None]],
        read: Callable[[npt.NDArray[np.float64]], Result],
        *,
        documents: int,
    ) -> Future[Call[Result]]:
        """Have texts or pairs run as one batch, and ``read`` turn the model's output into the result."""
        return self._pool.submit(self._run, inputs, read, documents)

    def _run(
        self,
        inputs: Sequence[tuple[str, str | None]],
        read: Callable[[npt.NDArray[np.float64]], Result],
        documents: int,
    ) -> Call[Result]:
        began = time.monotonic()
        self._begun.append(documents)
        encodings = [self._model.encode(text, pair) for text, pair in inputs]
        tokenized = time.monotonic()
        result = read(self._model.run(encodings))
        return Call(
            result,
            tokens=sum(len(encoding.ids) for encoding in encodings),
            truncated=sum(bool(encoding.overflowing) for encoding in encodings),
            thread=threading.get_ident(),
            queue_s=began - self._submitted,
            tokenize_s=tokenized - began,
            compute_s=time.monotonic() - tokenized,
        )


def cost_of(calls: Sequence[Call[Result]]) -> StageCost:
    """Add up the calls of a round; their time is shared by the threads that ran them."""
    threads = len({call.thread for call in calls}) or 1
    return StageCost(
        calls=len(calls),
        tokens=sum(call.tokens for call in calls),
        tokens_estimated=False,
        truncated=sum(call.truncated for call in calls),
        tokenize_ms=sum(call.tokenize_s for call in calls) * 1000 / threads,
        queue_ms=min((call.queue_s for call in calls), default=0.0) * 1000,
        compute_ms=sum(call.compute_s for call in calls) * 1000 / threads,
    )


class EmbeddedStage(ABC):
    """Run a model on the sidecar's own cores, in a pool of threads that embedded stages share.

    Cancelling, or a deadline, drops the calls that have not begun; one that runs ends by itself.
    """

    def __init__(self, name: str, spec: StageBase, pool: ThreadPoolExecutor, clock: Clock) -> None:
        self._name = name
        self._spec = spec
        self._pool = pool
        self._clock = clock
        self._serializer = serializer(spec.serializer)
        if self._serializer.owns_template:
            raise ConfigError(f"{name}: serializer: an embedded model cuts long pairs, and with them a template's end")
        self._fingerprint = fingerprint_of(spec, self._serializer)
        self._model: OnnxModel | None = None
        self.expected = ExpectedMs(clock)

    @abstractmethod
    def _load(self) -> OnnxModel:
        """Return the model, loaded and checked. It takes a while. Raises ConfigError."""

    @abstractmethod
    async def _score(self, calls: Calls, query: str, texts: Mapping[int, str]) -> tuple[dict[int, float], StageCost]:
        """Return the score of each text by its position, and what they cost. Raises InvalidAnswer."""

    @property
    def fingerprint(self) -> Fingerprint:
        return self._fingerprint

    @property
    def space(self) -> ScoreSpace:
        return self._spec.score_space

    @property
    def observed(self) -> Observed | None:
        return Observed(model=self._spec.model, max_length=self._spec.max_length) if self._model else None

    @property
    def unusable(self) -> str | None:
        return None

    @property
    def congestion(self) -> Congestion | None:
        return None

    @property
    def guarded(self) -> Guarded | None:
        return None

    async def returned(self) -> None:
        await asyncio.Event().wait()  # it is never lost

    @property
    def takes_instruction(self) -> bool:
        return False

    async def start(self) -> None:
        """Load the model, in a thread of its own: rounds of other stages go on meanwhile. Raises ConfigError."""
        self._model = await asyncio.to_thread(self._load)

    async def look_again(self) -> bool:
        return self._model is not None

    async def aclose(self) -> None:
        self._model = None

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
        if self._model is None:
            raise RuntimeError("a stage is started before it scores")
        most = self._spec.max_length * MOST_CHARACTERS_PER_TOKEN
        texts = {
            position: self._serializer.document(beginning_of(document.reveal(), most))
            for position, document in enumerate(documents)
            if not document.is_blank
        }
        calls = Calls(self._model, self._pool)
        kind: type[StageError]
        try:
            async with deadline.timeout():
                written = self._serializer.query(beginning_of(query.reveal(), most))
                scores, cost = await self._score(calls, written, texts)
            if all(map(math.isfinite, scores.values())):
                return StageScores(
                    tuple(scores.get(position) for position in range(len(documents))),
                    {position: Exclusion.BLANK for position in range(len(documents)) if position not in texts},
                    cost,
                )
            kind, code = StageInvalidAnswer, "not_a_number"
        except TimeoutError:
            kind, code = StageTimeout, "deadline"
        except InvalidAnswer as invalid:
            kind, code = StageInvalidAnswer, invalid.fault
        # outside, so that no error is chained whose frames hold text
        elapsed_ms = (self._clock() - started) * 1000
        raise kind(self._name, code, elapsed_ms=elapsed_ms, budget_ms=budget_ms, sent=calls.begun)
