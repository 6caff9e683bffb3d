"""What a release says of its stages: where each is, what it runs and what its scores depend on."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Discriminator, Field, field_validator, model_validator

from cascade.policy.frozen import Frozen
from cascade.types import ScoreSpace

__all__ = [
    "Activation",
    "ApiStage",
    "Auth",
    "BreakerRules",
    "EmbeddingStage",
    "HostedStage",
    "HttpStage",
    "OnePair",
    "OnnxStage",
    "Pooling",
    "StageBase",
    "StageSpec",
    "Stages",
    "TeiStage",
    "TokenBudget",
    "VllmStage",
    "Weights",
    "Windows",
]


class Auth(Frozen):
    """Name where an upstream's bearer token is kept: an environment variable or a file, never the token."""

    env: str | None = Field(default=None, description="Name of the environment variable that holds the token")
    file: str | None = Field(default=None, description="File that holds the token")

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.env is None) == (self.file is None):
            raise ValueError("name exactly one of env and file")
        return self


def _plain_url(value: object) -> object:
    if not isinstance(value, str):
        return value
    try:
        parts = urlsplit(value)
        whole = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
    except ValueError:  # its text quotes the address, and with it a credential that was put there
        whole = False
    if not whole or any(character.isspace() or not character.isprintable() for character in value):
        raise ValueError("give an absolute http or https address")
    if "@" in parts.netloc or "?" in value or "#" in value:
        raise ValueError("no credentials, query or fragment belong in the address; use auth for a token")
    return value.rstrip("/")


class BreakerRules(Frozen):
    """When a server is no longer asked, and how it is found out that it is well again."""

    window_s: float = Field(default=10.0, gt=0, le=3600, description="Time over which rounds are counted, in seconds")
    min_calls: int = Field(default=20, ge=1, description="Fewer rounds within the window tell nothing by their share")
    failure_share: float = Field(
        default=0.5, gt=0, le=1, description="Opens where this share of the rounds within the window failed"
    )
    consecutive: int = Field(default=5, ge=1, description="Opens after so many failures in a row within the window")
    slow_ms: float | None = Field(
        default=None,
        gt=0,
        description="A call that takes this long counts as a failure, and so does one given up after half of it, but "
        "for what stood in the server's queue. Unset: the stage's budget",
    )
    open_s: float = Field(
        default=5.0, gt=0, description="Seconds open, doubled with each opening that follows another, give or take 20%"
    )
    max_open_s: float = Field(default=60.0, gt=0, description="Most seconds open, before the 20%")
    probes: int = Field(
        default=3, ge=1, le=3, description="Rounds that must succeed, one at a time, before it closes again"
    )

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.max_open_s < self.open_s:
            raise ValueError("max_open_s must not be below open_s")
        return self


class StageBase(Frozen):
    """What every stage declares: its fingerprint."""

    model: str = Field(min_length=1, description="Name of the model, as the server knows it")
    revision: str | None = Field(default=None, description="Revision of the weights")
    quantization: str = Field(default="none", description="How the weights are quantised")
    dtype: str = Field(default="float32", description="Type that the model computes in")
    engine: str = Field(description="Engine and version, for example tei/1.9")
    serializer: str = Field(default="passthrough@1", description="Name and version of the serializer")
    tokenizer_revision: str | None = Field(default=None, description="Revision of the tokenizer")
    max_length: int = Field(default=512, ge=8, le=131072, description="Longest pair in tokens")
    score_space: Annotated[ScoreSpace, Field(strict=False)] = Field(
        default=ScoreSpace.LOGIT, description="What the raw scores are"
    )


class HttpStage(StageBase):
    """What every stage behind HTTP has."""

    url: Annotated[str, BeforeValidator(_plain_url)] = Field(description="Base address of the server")
    auth: Auth | None = Field(default=None, description="Where the bearer token is kept")
    ca_bundle: str | None = Field(default=None, description="PEM file of the authorities that sign the server")
    chunk_texts: int | None = Field(default=None, ge=1, description="Most texts a call; unset: the server's limit")
    chunk_bytes: int = Field(default=1_000_000, ge=1024, description="Most bytes a call")
    chunk_tokens: int = Field(default=16_384, ge=16, description="Most tokens a call, estimated")
    max_in_flight_texts: int = Field(
        default=1024,
        ge=1,
        description="Most texts under way at the server over all requests; more wait here. TEI's own limit counts too",
    )
    max_in_flight_tokens: int = Field(
        default=1_000_000, ge=16, description="Most tokens under way at the server over all requests, estimated"
    )
    adaptive_limit: bool = Field(
        default=True, description="Keep what is under way below both limits where the server answers ever more slowly"
    )
    retries: int = Field(default=1, ge=0, le=4, description="Most times that a call is made again where that may help")
    retry_share: float = Field(
        default=0.1, ge=0, le=1, description="Retries a call that was answered pays for; 0: none are made"
    )
    breaker: BreakerRules = Field(default=BreakerRules(), description="When the server is no longer asked")
    instruction: str | None = Field(
        default=None, min_length=1, description="What relevance means, for models that follow one; a caller's wins"
    )
    connect_ms: int = Field(default=1000, ge=1, description="Longest wait for a connection")


class TeiStage(HttpStage):
    """Text Embeddings Inference, and servers that take its request shape."""

    adapter: Literal["tei"]


class VllmStage(HttpStage):
    """vLLM's score API."""

    adapter: Literal["vllm"]


class ApiStage(HttpStage):
    """Infinity, llama.cpp, SGLang or NVIDIA NIM."""

    adapter: Literal["infinity", "llamacpp", "sglang", "nim"]


class HostedStage(HttpStage):
    """A hosted API in the shape of Cohere, Jina, Voyage or Mixedbread; they score probabilities."""

    adapter: Literal["cohere", "jina", "voyage", "mixedbread"]
    score_space: Annotated[ScoreSpace, Field(strict=False)] = ScoreSpace.PROBABILITY


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


StageSpec = Annotated[
    TeiStage | VllmStage | ApiStage | HostedStage | OnnxStage | EmbeddingStage, Discriminator("adapter")
]


class Stages(Frozen):
    """The rerankers of a release. Either may be absent."""

    small: StageSpec | None = None
    large: StageSpec | None = None
