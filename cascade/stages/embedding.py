"""A bi-encoder inside the sidecar, with the vectors of documents kept between requests."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from hashlib import blake2b
from typing import assert_never

import numpy as np
import numpy.typing as npt

from cascade.errors import ConfigError
from cascade.guard.deadline import Clock
from cascade.policy.release import EmbeddingStage, Pooling
from cascade.stages.embedded import EmbeddedStage
from cascade.stages.onnx_model import OnnxModel, gather
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


@dataclass(frozen=True, slots=True)
class _Embedded:
    vector: Vector
    tokens: int
    truncated: bool
    queue_s: float
    tokenize_s: float
    compute_s: float


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

    async def _score(
        self, model: OnnxModel, query: str, texts: Mapping[int, str]
    ) -> tuple[dict[int, float], StageCost]:
        keys = {position: VectorCache.key(text) for position, text in texts.items()}
        vectors = {key: vector for key in keys.values() if (vector := self._cache.get(key)) is not None}
        missing = {keys[position]: text for position, text in texts.items() if keys[position] not in vectors}
        made = await self._embed(model, query, missing)
        vectors |= {key: item.vector for key, item in zip(missing, made[1:], strict=True)}
        return {position: float(vectors[key] @ made[0].vector) for position, key in keys.items()}, _cost(made)

    async def _embed(self, model: OnnxModel, query: str, missing: Mapping[bytes, str]) -> list[_Embedded]:
        """Embed the query and the documents without a vector, keeping each vector as it is made."""
        submitted = time.monotonic()
        futures = [
            self._pool.submit(_embed_one, model, text, self._pooling, submitted) for text in (query, *missing.values())
        ]
        try:
            return await gather(futures)
        finally:
            for key, future in zip(missing, futures[1:], strict=True):
                if future.done() and not future.cancelled() and future.exception() is None:
                    self._cache.put(key, future.result().vector)


def _embed_one(model: OnnxModel, text: str, pooling: Pooling, submitted: float) -> _Embedded:
    began = time.monotonic()
    encoding = model.encode(text)
    tokenized = time.monotonic()
    states = model.run([encoding])[0]
    match pooling:
        case Pooling.CLS:
            vector = states[0]
        case Pooling.MEAN:
            vector = states.mean(axis=0)
        case _:
            assert_never(pooling)
    return _Embedded(
        vector=(vector / np.linalg.norm(vector)).astype(np.float32),
        tokens=len(encoding.ids),
        truncated=bool(encoding.overflowing),
        queue_s=began - submitted,
        tokenize_s=tokenized - began,
        compute_s=time.monotonic() - tokenized,
    )


def _cost(made: Sequence[_Embedded]) -> StageCost:
    return StageCost(
        calls=len(made),
        tokens=sum(item.tokens for item in made),
        tokens_estimated=False,
        truncated=sum(item.truncated for item in made),
        tokenize_ms=sum(item.tokenize_s for item in made) * 1000,
        queue_ms=min(item.queue_s for item in made) * 1000,
        compute_ms=sum(item.compute_s for item in made) * 1000,
    )
