"""A bi-encoder inside the sidecar, with the vectors of documents kept between requests."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from hashlib import blake2b
from typing import assert_never

import numpy as np
import numpy.typing as npt

from cascade.errors import ConfigError, StageInvalidAnswer
from cascade.guard.deadline import Clock
from cascade.policy.release import EmbeddingStage, Pooling
from cascade.stages.answers import AnswerFault, InvalidAnswer
from cascade.stages.embedded import Call, Calls, EmbeddedStage, cost_of
from cascade.stages.onnx_model import OnnxModel, gather
from cascade.text import Text
from cascade.tokens import MOST_CHARACTERS_PER_TOKEN, beginning_of
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


class EmbeddingReranker(EmbeddedStage):
    """Score documents by the cosine of their vector and the query's.

    One text is one call: scores depend on nothing but the two texts. A document costs a call the
    first time only. Vectors that were made before a deadline passed are kept, so the next request
    for the same documents has less to do; the round itself counts whole or not at all.
    """

    def __init__(self, name: str, spec: EmbeddingStage, pool: ThreadPoolExecutor, clock: Clock) -> None:
        super().__init__(name, spec, pool, clock)
        self._weights = spec.weights
        self._pooling = spec.pooling
        self._cache = VectorCache(spec.cached_vectors)

    def _load(self) -> OnnxModel:
        model = OnnxModel(self._weights, self._spec.max_length)
        if model.run([model.encode("probe")]).ndim != 3:
            raise ConfigError("weights: a bi-encoder answers one state a token, and this model does not")
        return model

    async def _score(self, calls: Calls, query: str, texts: Mapping[int, str]) -> tuple[dict[int, float], StageCost]:
        keys = {position: VectorCache.key(text) for position, text in texts.items()}
        vectors = {key: vector for key in keys.values() if (vector := self._cache.get(key)) is not None}
        missing = {keys[position]: text for position, text in texts.items() if keys[position] not in vectors}
        made = await self._embed(calls, query, missing)
        vectors |= {key: call.result for key, call in zip(missing, made[1:], strict=True)}
        return {position: float(vectors[key] @ made[0].result) for position, key in keys.items()}, cost_of(made)

    async def vectors(self, texts: Sequence[Text], *, queries: bool = False) -> npt.NDArray[np.float32]:
        """Return the unit vectors (n, d) of documents or of queries, as a round makes them. No deadline bounds it.

        For the vectors of a whole collection, which are kept like those of a round. Raises StageInvalidAnswer.
        """
        if self._model is None:
            raise RuntimeError("a stage is started before it embeds")
        most = self._spec.max_length * MOST_CHARACTERS_PER_TOKEN
        write = self._serializer.query if queries else self._serializer.document
        written = [write(beginning_of(text.reveal(), most)) for text in texts]
        calls, began = Calls(self._model, self._pool), self._clock()
        try:
            made = await gather(calls.submit([(text, None)], self._pooled, documents=1) for text in written)
        except InvalidAnswer as invalid:
            code = invalid.fault
        else:
            if not queries:
                for text, call in zip(written, made, strict=True):
                    self._cache.put(VectorCache.key(text), call.result)
            return np.stack([call.result for call in made])
        # outside, so that no error is chained whose frames hold text
        elapsed_ms = (self._clock() - began) * 1000
        raise StageInvalidAnswer(self._name, code, elapsed_ms=elapsed_ms, budget_ms=math.inf, sent=calls.begun)

    async def _embed(self, calls: Calls, query: str, missing: Mapping[bytes, str]) -> list[Call[Vector]]:
        """Embed the query and the documents without a vector, keeping each vector as it is made."""
        futures = [calls.submit([(query, None)], self._pooled, documents=0)]
        futures += [calls.submit([(text, None)], self._pooled, documents=1) for text in missing.values()]
        try:
            return await gather(futures)
        finally:
            for key, future in zip(missing, futures[1:], strict=True):
                if future.done() and not future.cancelled() and future.exception() is None:
                    self._cache.put(key, future.result().result)

    def _pooled(self, output: npt.NDArray[np.float64]) -> Vector:
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
        return unit
