"""The model of a release: what it may say, checked whole before anything uses it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

import orjson
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic_core import ErrorDetails

from cascade.errors import ConfigError
from cascade.policy.depth_rules import DepthSpec, HistoryNumbers
from cascade.policy.escalation_rules import CalibratedEscalation, EscalationSpec, FusedEscalation, NoEscalation
from cascade.types import ScoreSpace

__all__ = [
    "ApiStage",
    "Auth",
    "Budgets",
    "EmbeddingStage",
    "Evidence",
    "HostedStage",
    "HttpStage",
    "Limits",
    "OnePair",
    "OnnxStage",
    "Pooling",
    "Release",
    "StageBase",
    "StageSpec",
    "Stages",
    "TeiStage",
    "TokenBudget",
    "VllmStage",
    "Weights",
    "parse_release",
    "policy_digest",
    "release_digest",
]

Digest = Annotated[str, Field(pattern="^sha256:[0-9a-f]{64}$")]
_EVIDENCE_KEYS = frozenset({"release", "evidence"})


class _Frozen(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True, strict=True, allow_inf_nan=False)


class Auth(_Frozen):
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


class StageBase(_Frozen):
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


class Weights(_Frozen):
    """Name where model.onnx and tokenizer.json are: in an installed package, a folder, or on a model hub."""

    package: str | None = Field(default=None, description="Import name of an installed package; it is not imported")
    folder: str | None = Field(default=None, description="Folder, inside the package where one is named")
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


class OnePair(_Frozen):
    """Score one pair a call: the only exact mode for dynamically quantised models."""

    mode: Literal["one-pair"]


class TokenBudget(_Frozen):
    """Score pairs sorted by length in batches of at most ``max_tokens`` padded tokens."""

    mode: Literal["token-budget"]
    max_tokens: int = Field(ge=16, description="Padded tokens a batch")


class OnnxStage(StageBase):
    """A cross-encoder that runs inside the sidecar, on onnxruntime."""

    adapter: Literal["onnx"]
    weights: Weights = Field(description="Where the model's files are")
    batching: Annotated[OnePair | TokenBudget, Discriminator("mode")] = Field(
        default=OnePair(mode="one-pair"), description="How pairs share a call; batches only where the model allows it"
    )


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


class Stages(_Frozen):
    """The rerankers of a release. Either may be absent."""

    small: StageSpec | None = None
    large: StageSpec | None = None


class Budgets(_Frozen):
    """Split the time of a request, in milliseconds.

    A stage ends at its own budget or ``reserve_ms`` before the deadline, whichever is sooner.
    """

    total_ms: float = Field(gt=0, le=600_000, description="Deadline where the caller names none")
    small_ms: float = Field(gt=0, description="Longest time for the small stage")
    large_ms: float = Field(gt=0, description="Longest time for the large stage")
    reserve_ms: float = Field(ge=0, description="Kept for everything but stages")

    @model_validator(mode="after")
    def _reserve_fits(self) -> Self:
        if self.reserve_ms >= self.total_ms:
            raise ValueError("reserve_ms must be below total_ms")
        return self


class Limits(_Frozen):
    """Bound what one request may ask for."""

    max_candidates: int = Field(default=200, ge=1, description="Candidates scored; the rest keep first-stage order")
    max_documents: int = Field(default=2048, ge=1, description="Candidates accepted; more are refused")


def _probe(value: object) -> object:
    return "off" if value is False else value  # YAML reads a bare off so


class Evidence(_Frozen):
    """What was measured of a release, by digest of the file. It is no part of the policy digest."""

    certificate: Digest | None = Field(default=None, description="Digest of the certificate of its quality")
    report: Digest | None = Field(default=None, description="Digest of the report of its evaluation")


class Release(_Frozen):
    """One release: the whole behaviour of the sidecar, under one name."""

    release: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$", description="Its name, in headers and logs")
    mode: Literal["cascade", "observe"] = Field(
        default="cascade",
        description="`observe`: the large stage scores every candidate as before, the small one beside the answer, and "
        "records hold both and what the release would have decided",
    )
    stages: Stages = Field(description="`small` and `large`, each a stage; either may be left out")
    depth: DepthSpec = Field(description="How many candidates the small stage scores: a number, or a kind")
    escalation: EscalationSpec = Field(description="What the large stage scores: none, or a kind")
    history: HistoryNumbers | None = Field(
        default=None, description="How hard queries were by class and tenant, for the signal `history.difficulty`"
    )
    budgets: Budgets = Field(description="How the time of a request is split")
    limits: Limits = Field(default=Limits(), description="What one request may ask for")
    fallback: Literal["original-order", "error"] = Field(
        default="original-order", description="What a degraded answer is: an order with status 200, or an error 503"
    )
    probe: Annotated[Literal["off", "warn", "enforce"], BeforeValidator(_probe)] = Field(
        default="warn",
        description="Known pairs at start: not scored, told of in the log, or not ready before they are scored right",
    )
    evidence: Evidence | None = Field(default=None, description="Digests of what was measured of it")

    @property
    def calibration(self) -> str | None:
        """Return the digest of the calibration that the escalation reads, None where it reads none."""
        rule = self.escalation
        return rule.calibration if isinstance(rule, FusedEscalation | CalibratedEscalation) else None

    @model_validator(mode="after")
    def _stages_fit(self) -> Self:
        if self.stages.large is None and not isinstance(self.escalation, NoEscalation):
            raise ValueError("escalation needs a large stage; without one it is none")
        if self.mode == "observe" and (self.stages.small is None or self.stages.large is None):
            raise ValueError("mode observe scores with a small and a large stage; name both")
        if self.mode == "cascade" and self.stages.large is not None and isinstance(self.escalation, NoEscalation):
            raise ValueError("a large stage that nothing escalates to; leave it out")
        if self.stages.small is None and isinstance(self.escalation, FusedEscalation | CalibratedEscalation):
            raise ValueError(f"escalation {self.escalation.kind} reads small scores; it needs a small stage")
        return self


def parse_release(data: Mapping[str, Any]) -> Release:
    """Check a release that was read and expanded. Raises ConfigError naming each key, never its value."""
    try:
        return Release.model_validate(dict(data))
    except ValidationError as error:
        raise ConfigError(_explain(error)) from None


def _explain(error: ValidationError) -> str:
    faults = error.errors(include_url=False, include_input=False)
    return "; ".join(f"{'.'.join(map(str, fault['loc'])) or 'release'}: {_rule(fault)}" for fault in faults)


def _rule(fault: ErrorDetails) -> str:
    """Tell the rule that a key breaks. Of pydantic's own texts, only that of an unknown tag quotes the value."""
    if fault["type"] != "union_tag_invalid":
        return fault["msg"]
    return f"{fault['ctx']['discriminator']} must be one of {fault['ctx']['expected_tags']}"


def release_digest(data: Mapping[str, Any]) -> str:
    """Return ``sha256:`` of the canonical JSON of a release as written, variables unexpanded."""
    return _digest(data)


def policy_digest(data: Mapping[str, Any]) -> str:
    """Return the digest of what a release does: like the release's, without its name and evidence."""
    return _digest({key: value for key, value in data.items() if key not in _EVIDENCE_KEYS})


def _digest(data: Mapping[str, Any]) -> str:
    canonical = orjson.dumps(dict(data), option=orjson.OPT_SORT_KEYS)
    return "sha256:" + hashlib.sha256(canonical).hexdigest()
