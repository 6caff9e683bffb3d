"""A bi-encoder inside the sidecar, with the vectors of documents kept between requests."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from typing import assert_never

import numpy as np
import numpy.typing as npt

from cascade.errors import ConfigError
from cascade.guard.deadline import Clock, Deadline
from cascade.policy.release import EmbeddingStage, Pooling
from cascade.stages.answers import AnswerFault, InvalidAnswer
from cascade.stages.embedded import EmbeddedStage, Work
from cascade.stages.engine.batching import ONE_PAIR
from cascade.stages.engine.engine import Engine
from cascade.stages.engine.readers import text_reader
from cascade.stages.engine.round import NotRun
from cascade.stages.engine.tokens import Tokens
from cascade.stages.engine.workers import Workers
from cascade.stages.onnx_model import DEFAULT_SESSION, LONGEST_INPUT, OnnxModel, SessionOptions, refused
from cascade.telemetry.work import NO_WORK_EVENTS, WorkEvents
from cascade.text import Text
from cascade.tokens import beginning_of
from cascade.types import StageCost

__all__ = ["EmbeddingReranker", "VectorCache"]

Vector = npt.NDArray[np.float32]


class VectorCache:
    """Keep the vectors of the documents used last, by a digest of their text; the text is not kept.

    Memory is ``most`` times 4 bytes a dimension and about 200 bytes beside.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._vectors: OrderedDict[bytes, Vector] = OrderedDict()

    def __len__(self) -> int:
        return len(self._vectors)

    @staticmethod
    def key(text: str) -> bytes:
        """Return the digest that a text is kept under."""
        return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()

    def get(self, key: bytes) -> Vector | None:
        """Return a vector and mark it as used, None where it is not kept."""
        vector = self._vectors.get(key)
        if vector is not None:
            self._vectors.move_to_end(key)
        return vector

    def put(self, key: bytes, vector: Vector) -> None:
        """Keep a vector, in place of the one used longest ago where there is no room."""
        self._vectors[key] = vector
        while len(self._vectors) > self._most:
            self._vectors.popitem(last=False)


class EmbeddingReranker(EmbeddedStage[Vector]):
    """Score documents by the cosine of their vector and the query's.

    One text is one call: scores depend on nothing but the two texts. A document costs a call the
    first time only. Vectors that were made before a deadline passed are kept, so the next request
    for the same documents has less to do; the round itself counts whole or not at all.
    """

    def __init__(
        self,
        name: str,
        spec: EmbeddingStage,
        workers: Workers,
        clock: Clock,
        count_fault: Callable[[BaseException], None] = lambda error: None,
        *,
        session: SessionOptions = DEFAULT_SESSION,
        events: WorkEvents = NO_WORK_EVENTS,
    ) -> None:
        super().__init__(name, spec, workers, clock, count_fault, session=session, events=events)
        self._weights = spec.weights
        self._pooling = spec.pooling
        self._cache = VectorCache(spec.cached_vectors)

    def _load(self) -> Engine[Vector]:
        model = OnnxModel(self._weights, self._session)
        self._weights_sha256 = model.weights_sha256
        reader = text_reader(model.files.tokenizer, self._spec.max_length)
        with refused("texts"):
            states = model.run(reader.read(None, "probe").inputs)
        if states.ndim != 3:
            raise ConfigError("weights: a bi-encoder answers one state a token, and this model does not")
        ids, types = reader.read(None, "lamp " * LONGEST_INPUT).inputs[0]
        with refused("texts", longest=self._spec.max_length):
            model.run([Tokens(ids[:LONGEST_INPUT], types[:LONGEST_INPUT])])
        return Engine(
            model,
            workers=self._workers,
            batching=ONE_PAIR,
            reader=reader,
            answer=self._pooled,
            keeps_parts=True,
            count_fault=self._count_fault,
            ran=self._events.ran,
        )

    async def _score(
        self, work: Work[Vector], query: str, texts: Mapping[int, str]
    ) -> tuple[dict[int, float], StageCost]:
        keys = {position: VectorCache.key(text) for position, text in texts.items()}
        vectors = {key: vector for key in keys.values() if (vector := self._cache.get(key)) is not None}
        missing = {keys[position]: text for position, text in texts.items() if keys[position] not in vectors}
        with work.round("", [query, *missing.values()], queries=1) as round_:
            try:
                asked, *made = await round_.done()
            finally:
                for key, vector in zip(missing, round_.results[1:], strict=True):
                    if vector is not None:
                        self._cache.put(key, vector)
        vectors |= dict(zip(missing, made, strict=True))
        return {position: float(vectors[key] @ asked) for position, key in keys.items()}, round_.cost()

    async def vectors(self, texts: Sequence[Text], *, queries: bool = False) -> npt.NDArray[np.float32]:
        """Return the unit vectors (n, d) of documents or of queries, as a round makes them. No deadline bounds it.

        For the vectors of a whole collection, which are kept like those of a round. Raises StageInvalidAnswer.
        """
        if self._engine is None:
            raise RuntimeError("a stage is started before it embeds")
        write = self._serializer.query if queries else self._serializer.document
        written = [write(beginning_of(text.reveal(), self._most_characters)) for text in texts]
        work, began = Work(self._engine, Deadline(math.inf, self._clock)), self._clock()
        try:
            with work.round("", written) as round_:
                made = await round_.done()
        except NotRun as fault:
            kind, code = fault.kind, fault.code
        else:
            if not queries:
                for text, vector in zip(written, made, strict=True):
                    self._cache.put(VectorCache.key(text), vector)
            return np.stack(made)
        # outside, so that no error is chained whose frames hold text
        elapsed_ms = (self._clock() - began) * 1000
        raise kind(self._name, code, elapsed_ms=elapsed_ms, budget_ms=math.inf, sent=work.begun)

    def _pooled(self, output: npt.NDArray[np.float64], texts: int) -> list[Vector]:
        """Return the unit vector of one text's token states. Raises InvalidAnswer where it has none."""
        states = output[0]
        match self._pooling:
            case Pooling.CLS:
                vector = states[0]
            case Pooling.MEAN:
                vector = states.mean(axis=0)
            case _:
                assert_never(self._pooling)
        length = float(np.linalg.norm(vector))
        if not math.isfinite(length) or length == 0:
            raise InvalidAnswer(AnswerFault.NOT_A_NUMBER)
        unit: Vector = (vector / length).astype(np.float32)
        return [unit]
