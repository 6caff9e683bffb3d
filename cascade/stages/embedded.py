"""What stages inside the sidecar share: loading, time, and checking scores."""

from __future__ import annotations

import asyncio
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from cascade.errors import StageError, StageInvalidAnswer, StageTimeout
from cascade.guard.deadline import Clock, Deadline
from cascade.policy.release import StageBase
from cascade.stages.base import Observed
from cascade.stages.fingerprint import fingerprint_of
from cascade.stages.onnx_model import OnnxModel
from cascade.stages.serializers import serializer
from cascade.text import Text
from cascade.types import Exclusion, Fingerprint, ScoreSpace, StageCost, StageScores

__all__ = ["EmbeddedStage"]


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
        self._fingerprint = fingerprint_of(spec, self._serializer)
        self._model: OnnxModel | None = None

    @abstractmethod
    def _load(self) -> OnnxModel:
        """Return the model, loaded and checked. Runs in the pool. Raises ConfigError."""

    @abstractmethod
    async def _score(
        self, model: OnnxModel, query: str, texts: Mapping[int, str]
    ) -> tuple[dict[int, float], StageCost]:
        """Return the score of each text by its position, and what they cost."""

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

    async def start(self) -> None:
        """Load the model. Raises ConfigError."""
        self._model = await asyncio.get_running_loop().run_in_executor(self._pool, self._load)

    async def aclose(self) -> None:
        self._model = None

    async def score(self, query: Text, documents: Sequence[Text], *, deadline: Deadline, call_id: str) -> StageScores:
        started, budget_ms = self._clock(), deadline.remaining_ms()
        if self._model is None:
            raise RuntimeError("a stage is started before it scores")
        texts = {
            position: self._serializer.document(document.reveal())
            for position, document in enumerate(documents)
            if not document.is_blank
        }
        try:
            async with deadline.timeout():
                scores, cost = await self._score(self._model, self._serializer.query(query.reveal()), texts)
        except TimeoutError:
            raise self._error(StageTimeout, "deadline", started, budget_ms) from None
        if not all(map(math.isfinite, scores.values())):
            raise self._error(StageInvalidAnswer, "not_a_number", started, budget_ms)
        return StageScores(
            tuple(scores.get(position) for position in range(len(documents))),
            {position: Exclusion.BLANK for position in range(len(documents)) if position not in texts},
            cost,
        )

    def _error(self, kind: type[StageError], code: str, started: float, budget_ms: float) -> StageError:
        return kind(self._name, code, elapsed_ms=(self._clock() - started) * 1000, budget_ms=budget_ms)
