"""Derive the fingerprint of a stage from what its release declares."""

from __future__ import annotations

from cascade.policy.release import HttpStage, StageBase
from cascade.stages.serializers import Serializer
from cascade.types import Fingerprint

__all__ = ["fingerprint_of"]


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
    )
