"""A cross-encoder inside the sidecar."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final, assert_never

import numpy as np
import numpy.typing as npt

from cascade.errors import ConfigError
from cascade.guard.deadline import Clock
from cascade.policy.release import OnePair, OnnxStage, TokenBudget
from cascade.stages.embedded import Calls, EmbeddedStage, cost_of
from cascade.stages.onnx_model import OnnxModel, gather
from cascade.tokens import PAIR_OVERHEAD_TOKENS, estimate_tokens
from cascade.types import StageCost

__all__ = ["OnnxReranker"]

_INVARIANCE_TOLERANCE: Final = 1e-3
_PROBE_QUERY: Final = "How is a lighthouse kept?"
_PROBES: Final = (
    "A lighthouse.",
    "The keeper trims the lamp at dusk and writes the hour in the log, as every evening.",
    "Bread dough rises faster in a warm room. " * 8,
)


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
        match self._batching:
            case OnePair():
                _logits(model.run([model.encode(_PROBE_QUERY, _PROBES[0])]), 1)
            case TokenBudget():
                _check_invariance(model)
            case _:
                assert_never(self._batching)
        return model

    async def _score(self, calls: Calls, query: str, texts: Mapping[int, str]) -> tuple[dict[int, float], StageCost]:
        match self._batching:
            case OnePair():
                batches = [[position] for position in texts]
            case TokenBudget(max_tokens=budget):
                batches = _batches(texts, query, budget, self._spec.max_length)
            case _:
                assert_never(self._batching)
        done = await gather(
            calls.submit(
                [(query, texts[position]) for position in batch],
                partial(_logits, pairs=len(batch)),
                documents=len(batch),
            )
            for batch in batches
        )
        scores = {
            position: score
            for batch, call in zip(batches, done, strict=True)
            for position, score in zip(batch, call.result, strict=True)
        }
        return scores, cost_of(done)


def _logits(output: npt.NDArray[np.float64], pairs: int) -> list[float]:
    if output.size != pairs:
        raise ConfigError("weights: a cross-encoder answers one score a pair, and this model does not")
    scores: list[float] = output.reshape(-1).tolist()
    return scores


def _check_invariance(model: OnnxModel) -> None:
    """Refuse a model whose scores of fixed pairs move with their batch mates. Raises ConfigError."""
    pairs = [model.encode(_PROBE_QUERY, probe) for probe in _PROBES]
    alone = [_logits(model.run([pair]), 1)[0] for pair in pairs]
    together = _logits(model.run(pairs), len(pairs))
    effect = max(abs(one - other) for one, other in zip(alone, together, strict=True))
    if effect > _INVARIANCE_TOLERANCE:
        raise ConfigError(
            f"batching: scores of this model move by up to {effect:.3f} with their batch mates; use one-pair"
        )


def _batches(texts: Mapping[int, str], query: str, budget: int, max_length: int) -> list[list[int]]:
    """Group positions by length so that a batch, padded to its longest, stays within the token budget.

    Lengths are estimates, and no pair is longer than ``max_length``.
    """
    around = estimate_tokens(query) + PAIR_OVERHEAD_TOKENS
    tokens = {position: min(max_length, estimate_tokens(text) + around) for position, text in texts.items()}
    batches: list[list[int]] = []
    for position in sorted(texts, key=lambda position: (-tokens[position], position)):
        if batches and tokens[batches[-1][0]] * (len(batches[-1]) + 1) <= budget:
            batches[-1].append(position)
        else:
            batches.append([position])
    return batches
