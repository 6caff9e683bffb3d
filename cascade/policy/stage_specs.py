"""What a release says of its stages: where each is, what it runs and what its scores depend on."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, ClassVar, Literal, Self
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Discriminator, Field, model_validator

from cascade.policy.credentials import Auth, ClientCertificate
from cascade.policy.embedded_specs import (
    Activation,
    Attention,
    EmbeddingStage,
    OnePair,
    OnnxStage,
    Pooling,
    TokenBudget,
    Weights,
    Windows,
)
from cascade.policy.frozen import Frozen
from cascade.policy.stage_base import StageBase
from cascade.types import ScoreSpace

__all__ = [
    "Activation",
    "ApiStage",
    "Attention",
    "Auth",
    "BreakerRules",
    "BrokenOrder",
    "ChatStage",
    "ClientCertificate",
    "EmbeddingStage",
    "HostedStage",
    "HttpStage",
    "OnePair",
    "OnnxStage",
    "OrderForm",
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


class HttpStage(StageBase):
    """What every stage behind HTTP has."""

    url: Annotated[str, BeforeValidator(_plain_url)] = Field(description="Base address of the server")
    auth: Auth | None = Field(default=None, description="Where the bearer token is kept")
    ca_bundle: str | None = Field(default=None, description="PEM file of the authorities that sign the server")
    client_certificate: ClientCertificate | None = Field(
        default=None, description="What is shown to a server that asks its clients for a certificate"
    )
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

    @property
    def secret_files(self) -> list[str]:
        """Return the files of secrets that it names."""
        shown = self.client_certificate
        named = [self.auth and self.auth.file, *((shown.certificate, shown.key, shown.key_password) if shown else ())]
        return [each for each in named if each is not None]


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


class OrderForm(StrEnum):
    """How a model is held to the form of an order."""

    TEXT = "text"
    REGEX = "regex"
    JSON_SCHEMA = "json-schema"


class BrokenOrder(StrEnum):
    """What becomes of an answer that is no permutation."""

    REPAIR = "repair"
    REFUSE = "refuse"


class ChatStage(HttpStage):
    """A language model behind an OpenAI-compatible chat endpoint that orders the whole list in one call."""

    orders: ClassVar[bool] = True
    adapter: Literal["chat"]
    serializer: str = Field(default="listwise@1", description="Name and version of the prompt")
    max_length: int = Field(
        default=8192, ge=256, le=131072, description="Longest prompt and answer together, in tokens"
    )
    score_space: Annotated[ScoreSpace, Field(strict=False)] = Field(
        default=ScoreSpace.RANK, description="What the raw scores are: always `rank`"
    )
    max_in_flight_texts: int = Field(
        default=16,
        ge=1,
        description="Most lists under way at the server over all requests: here a list counts as one text",
    )
    passage_tokens: int = Field(
        default=256,
        ge=8,
        le=16384,
        description="Most tokens of a passage, estimated; fewer where `max_length` asks for it",
    )
    answer_tokens: int | None = Field(
        default=None,
        ge=8,
        le=32768,
        description="Most tokens of the answer; unset: 8 a passage and 16. A model that reasons first needs more",
    )
    seed: int = Field(default=0, ge=0, description="Sent with every call, beside a temperature of 0")
    form: Annotated[OrderForm, Field(strict=False)] = Field(
        default=OrderForm.TEXT,
        description="How the model is held to the form: by the prompt alone, by vLLM's `structured_outputs.regex`, "
        "or by `response_format` with a JSON schema",
    )
    broken_order: Annotated[BrokenOrder, Field(strict=False)] = Field(
        default=BrokenOrder.REPAIR,
        description="`repair`: what an answer names twice or that is not there is dropped, what it omits comes behind, in "
        "the small order, and all is counted. `refuse`: the round fails, and the small order stands",
    )
    thinking: bool | None = Field(
        default=None,
        description="Sent as `chat_template_kwargs.enable_thinking`, for models that have it; unset: not sent",
    )

    @model_validator(mode="after")
    def _never_split(self) -> Self:
        for name in ("chunk_texts", "chunk_bytes", "chunk_tokens"):
            if getattr(self, name) != type(self).model_fields[name].default:
                raise ValueError(f"{name}: a list that is ordered is one call, and is never split")
        if self.answer_tokens is not None and self.answer_tokens * 2 > self.max_length:
            raise ValueError("answer_tokens: more than half of max_length leaves too little room for passages")
        return self


StageSpec = Annotated[
    TeiStage | VllmStage | ApiStage | HostedStage | ChatStage | OnnxStage | EmbeddingStage, Discriminator("adapter")
]


class Stages(Frozen):
    """The rerankers of a release. Either may be absent."""

    small: StageSpec | None = None
    large: StageSpec | None = None
