"""What a release says of the models that run inside the sidecar."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal, Self

from pydantic import Discriminator, Field, field_validator, model_validator

from cascade.policy.frozen import Frozen
from cascade.policy.stage_base import StageBase
from cascade.types import ScoreSpace

__all__ = [
    "Activation",
    "Attention",
    "EmbeddingStage",
    "OnePair",
    "OnnxStage",
    "Pooling",
    "TokenBudget",
    "Weights",
    "Windows",
]


class Weights(Frozen):
    """Name where model.onnx and tokenizer.json are: in an installed package, a folder, or on a model hub."""

    package: str | None = Field(default=None, description="Import name of an installed package; it is not imported")
    folder: str | None = Field(
        default=None, description="Folder, in the package if one is named; else relative to where the process runs"
    )
    hub: str | None = Field(default=None, description="Name on the model hub")
    revision: str | None = Field(default=None, description="Revision on the model hub")
    sha256: dict[str, Annotated[str, Field(pattern="^[0-9a-f]{64}$")]] = Field(
        default_factory=dict, description="Checksum of each file, checked at load"
    )

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if (self.hub is None) == (self.folder is None):
            raise ValueError("name a folder (inside a package or not) or a hub model")
        if self.hub is not None and self.package is not None:
            raise ValueError("a hub model lies in no package")
        if self.revision is not None and self.hub is None:
            raise ValueError("a revision belongs to a hub model")
        return self


class OnePair(Frozen):
    """Score one pair a call: the only exact mode for dynamically quantised models."""

    mode: Literal["one-pair"]


class TokenBudget(Frozen):
    """Score pairs of about one length, those of other requests too, in batches of at most ``max_total_tokens`` padded tokens.

    Of these numbers none moves a score: a model whose scores depend on its batch is refused at load.
    """

    mode: Literal["token-budget"]
    max_total_tokens: int = Field(
        default=512, ge=16, description="Most padded tokens a batch; a longer pair goes alone"
    )
    max_pairs: int = Field(default=32, ge=1, le=1024, description="Most pairs a batch")
    max_wait_ms: float = Field(
        default=0.0, ge=0, le=8, description="Longest wait of a pair for others to fill its batch, in milliseconds"
    )


class Windows(Frozen):
    """Score a document that is longer than its room in several parts; the best part is its score."""

    most: int = Field(default=4, ge=2, le=64, description="Most windows a document; what lies beyond is not read")
    overlap_tokens: int = Field(
        default=32, ge=0, le=4096, description="Tokens that a window repeats of the one before, at most half of it"
    )


class Activation(StrEnum):
    """What is applied to the model's output."""

    NONE = "none"
    SIGMOID = "sigmoid"


class Attention(StrEnum):
    """How the attention of a model is run where one pair is one call."""

    EXACT = "exact"
    EXPORTED = "exported"


class OnnxStage(StageBase):
    """A cross-encoder that runs inside the sidecar, on onnxruntime."""

    adapter: Literal["onnx"]
    weights: Weights = Field(description="Where the model's files are")
    batching: Annotated[OnePair | TokenBudget, Discriminator("mode")] = Field(
        default=OnePair(mode="one-pair"), description="How pairs share a call; batches only where the model allows it"
    )
    windows: Windows | None = Field(
        default=None, description="How documents longer than their room are scored; unset: their beginning alone"
    )
    activation: Annotated[Activation, Field(strict=False)] = Field(
        default=Activation.NONE,
        description="What is applied to the model's output: with `sigmoid` the score space is `probability`",
    )
    attention: Annotated[Attention, Field(strict=False)] = Field(
        default=Attention.EXACT,
        description="`exact`: one pair a call, the attention is rewritten at load into a faster form where that scores "
        "the same bits. `exported`: it runs as it is in the file. No part of the fingerprint, nor of the policy digest",
    )
    cached_token_bytes: int = Field(
        default=33_554_432,
        ge=0,
        description="Memory for the token ids of documents, by a digest of their text; 0: none",
    )
    tuning: str | None = Field(
        default=None,
        pattern="^sha256:[0-9a-f]{64}$",
        description="Digest of a file of `cascade tune` that the numbers of `batching` come from which are not given here. "
        "No part of the policy digest",
    )

    @model_validator(mode="after")
    def _space_of_activation(self) -> Self:
        if self.score_space is ScoreSpace.COSINE:
            raise ValueError("score_space: a cross-encoder scores logits or probabilities")
        if self.activation is Activation.SIGMOID and self.score_space is not ScoreSpace.PROBABILITY:
            raise ValueError("activation: a sigmoid gives probabilities, and score_space says logit")
        return self


class Pooling(StrEnum):
    """How token states become one vector."""

    CLS = "cls"
    MEAN = "mean"


class EmbeddingStage(StageBase):
    """A bi-encoder that runs inside the sidecar and keeps the vectors of documents between requests."""

    adapter: Literal["onnx-embedding"]
    weights: Weights = Field(description="Where the model's files are")
    pooling: Annotated[Pooling, Field(strict=False)] = Field(
        default=Pooling.CLS, description="How token states become one vector"
    )
    cached_vectors: int = Field(default=50_000, ge=0, description="Documents whose vectors are kept")
    score_space: Annotated[ScoreSpace, Field(strict=False)] = ScoreSpace.COSINE

    @field_validator("score_space")
    @classmethod
    def _cosine(cls, value: ScoreSpace) -> ScoreSpace:
        if value is not ScoreSpace.COSINE:
            raise ValueError("a bi-encoder scores cosines")
        return value
