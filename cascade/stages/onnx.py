"""A cross-encoder inside the sidecar."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from cascade.errors import ConfigError
from cascade.guard.deadline import Clock
from cascade.policy.release import OnePair, OnnxStage, TokenBudget
from cascade.stages.embedded import EmbeddedStage
from cascade.stages.onnx_model import OnnxModel, gather
from cascade.types import StageCost

__all__ = ["OnnxReranker"]

_INVARIANCE_TOLERANCE: Final = 1e-3
_PROBE_QUERY: Final = "How is a lighthouse kept?"
_PROBES: Final = (
    "A lighthouse.",
    "The keeper trims the lamp at dusk and writes the hour in the log, as every evening.",
    "Bread dough rises faster in a warm room. " * 8,
)


@dataclass(frozen=True, slots=True)
class _Scored:
    positions: tuple[int, ...]
    scores: tuple[float, ...]
    tokens: int
    truncated: int
    queue_s: float
    tokenize_s: float
    compute_s: float


class OnnxReranker(EmbeddedStage):
    """Score pairs with a cross-encoder.

    In ``one-pair`` mode each pair is a call of its own: scores depend on nothing but the pair, bit for
    bit. In ``token-budget`` mode pairs are sorted by length and batched; a model whose scores move
    with its batch mates is refused in that mode at load.
    """

    def __init__(self, name: str, spec: OnnxStage, pool: ThreadPoolExecutor, clock: Clock) -> None:
        super().__init__(name, spec, pool, clock)
        self._weights = spec.weights
        self._batching = spec.batching

    def _load(self) -> OnnxModel:
        model = OnnxModel(self._weights, self._spec.max_length)
        effect = _batch_effect(model)
        if isinstance(self._batching, TokenBudget) and effect > _INVARIANCE_TOLERANCE:
            raise ConfigError(
                f"batching: scores of this model move by up to {effect:.3f} with their batch mates; use one-pair"
            )
        return model

    async def _score(
        self, model: OnnxModel, query: str, texts: Mapping[int, str]
    ) -> tuple[dict[int, float], StageCost]:
        match self._batching:
            case OnePair():
                batches = [[position] for position in texts]
            case TokenBudget(max_tokens=budget):
                batches = _batches(texts, len(query), budget)
        submitted = time.monotonic()
        parts = await gather(
            self._pool.submit(_score_batch, model, query, [(p, texts[p]) for p in batch], submitted)
            for batch in batches
        )
        return {p: s for part in parts for p, s in zip(part.positions, part.scores, strict=True)}, _cost(parts)


def _score_batch(model: OnnxModel, query: str, batch: Sequence[tuple[int, str]], submitted: float) -> _Scored:
    began = time.monotonic()
    encodings = [model.encode(query, text) for _, text in batch]
    tokenized = time.monotonic()
    logits = _logits(model.run(encodings), len(batch))
    return _Scored(
        positions=tuple(position for position, _ in batch),
        scores=tuple(logits.tolist()),
        tokens=sum(len(encoding.ids) for encoding in encodings),
        truncated=sum(bool(encoding.overflowing) for encoding in encodings),
        queue_s=began - submitted,
        tokenize_s=tokenized - began,
        compute_s=time.monotonic() - tokenized,
    )


def _logits(output: npt.NDArray[np.float64], pairs: int) -> npt.NDArray[np.float64]:
    if output.size != pairs:
        raise ConfigError("weights: a cross-encoder answers one score a pair, and this model does not")
    return output.reshape(-1)


def _batch_effect(model: OnnxModel) -> float:
    """Measure by how much a score moves with its batch mates: the greatest difference over fixed pairs."""
    pairs = [model.encode(_PROBE_QUERY, probe) for probe in _PROBES]
    alone = np.concatenate([_logits(model.run([pair]), 1) for pair in pairs])
    return float(np.max(np.abs(_logits(model.run(pairs), len(pairs)) - alone)))


def _batches(texts: Mapping[int, str], query_characters: int, budget: int) -> list[list[int]]:
    """Group positions by length so that a batch, padded to its longest, stays within the token budget.

    Four characters count as a token.
    """
    batches: list[list[int]] = []
    for position in sorted(texts, key=lambda position: (-len(texts[position]), position)):
        if batches:
            longest = (len(texts[batches[-1][0]]) + query_characters) // 4 + 3
            if longest * (len(batches[-1]) + 1) <= budget:
                batches[-1].append(position)
                continue
        batches.append([position])
    return batches


def _cost(parts: Sequence[_Scored]) -> StageCost:
    """Add up: tokenising and computing over all threads, and the wait of the pair that waited least."""
    return StageCost(
        calls=len(parts),
        tokens=sum(part.tokens for part in parts),
        tokens_estimated=False,
        truncated=sum(part.truncated for part in parts),
        tokenize_ms=sum(part.tokenize_s for part in parts) * 1000,
        queue_ms=min((part.queue_s for part in parts), default=0.0) * 1000,
        compute_ms=sum(part.compute_s for part in parts) * 1000,
    )
