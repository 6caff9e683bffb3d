"""Derive the fingerprint of a stage from what its release declares."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cascade.policy.release import HttpStage, StageBase
from cascade.policy.stage_specs import Activation, ChatStage, EmbeddingStage, OnnxStage, Pooling, TokenBudget
from cascade.stages.serializers import Serializer
from cascade.types import Fingerprint

__all__ = ["completed", "fingerprint_of"]


def fingerprint_of(spec: StageBase, serializer: Serializer) -> Fingerprint:
    """Return what the scores of a stage depend on."""
    return Fingerprint(
        model=spec.model,
        revision=spec.revision,
        quantization=spec.quantization,
        dtype=spec.dtype,
        engine=spec.engine,
        serializer=spec.serializer,
        serializer_sha256=serializer.sha256,
        tokenizer_revision=spec.tokenizer_revision,
        max_length=spec.max_length,
        score_space=spec.score_space,
        instruction=spec.instruction if isinstance(spec, HttpStage) else None,
        mode=_mode(spec),
    )


def completed(told: Mapping[str, Any]) -> dict[str, Any]:
    """Return a fingerprint that was written down, with the field that came later: what has none ran as None says."""
    return {"mode": None, **told}


def _mode(spec: StageBase) -> str | None:
    """Return how a model is run, or asked for an order, where that is not as ever.

    As ever is of a cross-encoder one pair a call, its beginning alone, as it is; of a bi-encoder the state of its first token.
    The numbers of a batch are no part of it: they move no score of a model that may be batched. Nor is ``attention``: the
    exact form is used where it scores the same bits alone.
    """
    if isinstance(spec, EmbeddingStage):
        return None if spec.pooling is Pooling.CLS else str(spec.pooling)
    if isinstance(spec, ChatStage):
        thinking = "" if spec.thinking is None else f" thinking={str(spec.thinking).lower()}"
        room = f"passages={spec.passage_tokens} answer={spec.answer_tokens or 0}"
        return f"{spec.form} {spec.broken_order} {room} seed={spec.seed}{thinking}"
    if not isinstance(spec, OnnxStage):
        return None
    told = []
    if isinstance(spec.batching, TokenBudget):
        told.append("batches")
    if spec.windows is not None:
        told.append(f"windows={spec.windows.most}/{spec.windows.overlap_tokens}")
    if spec.activation is not Activation.NONE:
        told.append(str(spec.activation))
    return " ".join(told) or None
