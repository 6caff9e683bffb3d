"""How a framework's reranker asks the sidecar: the options that all of them share."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

import httpx
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    FiniteFloat,
    SecretStr,
    StrictInt,
    ValidationInfo,
    field_validator,
)

__all__ = ["KEY_VARIABLE", "Options", "ScoredOptions"]

KEY_VARIABLE: Final = "CASCADE_API_KEY"
"""The environment variable that the API key is read from where none is given."""


def _address(given: str) -> str:
    """Return the sidecar's address without a trailing slash. Raises ValueError, which does not repeat it."""
    try:
        url = httpx.URL(given)
        plain = url.scheme in ("http", "https") and url.host and not (url.userinfo or url.query or url.fragment)
    except httpx.InvalidURL:
        plain = False
    if not plain:
        raise ValueError("must be http:// or https:// and a host, without user, query or fragment")
    return given.rstrip("/")


def _sendable(key: SecretStr | None) -> SecretStr | None:
    """Return a key that a header can carry. Raises ValueError, for one that was read with the end of its line say."""
    if key is not None and not (key.get_secret_value().isascii() and key.get_secret_value().isprintable()):
        raise ValueError("must be printable ASCII")
    return key


def _key_of_environment() -> Any:
    """Return the key as it is; validation makes a secret of it."""
    return os.environ.get(KEY_VARIABLE) or None


_Channel = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")]


class Options(BaseModel):
    """Where the sidecar is, what is asked of it, and what happens when it does not answer.

    ``api_key`` is in no dump and no ``repr``: whoever loads what was saved reads it from ``CASCADE_API_KEY``.
    """

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True, validate_assignment=True)

    url: Annotated[str, AfterValidator(_address)] = Field(
        default="http://127.0.0.1:8787",
        description="The sidecar's public listener, with a path before its routes or none",
    )
    api_key: Annotated[SecretStr | None, AfterValidator(_sendable)] = Field(
        default_factory=_key_of_environment,
        validate_default=True,
        exclude=True,
        repr=False,
        description="Sent as a bearer token",
    )
    top_n: Annotated[StrictInt, Field(ge=1)] | None = Field(default=None, description="Documents returned; None: all")
    deadline_ms: Annotated[FiniteFloat, Field(ge=0)] | None = Field(
        default=None, description="Time until the answer leaves the sidecar; None: what its release says"
    )
    tenant: str | None = Field(default=None, description="Whose request it is")
    priority: Annotated[StrictInt, Field(ge=0)] = Field(default=0, description="Class under load, 0 the first")
    channels: dict[_Channel, str] = Field(
        default_factory=dict, description="First-stage channel -> metadata key that holds its score"
    )
    timeout_s: Annotated[FiniteFloat, Field(gt=0)] = Field(
        default=10.0,
        validate_default=True,
        description="Longest wait for a connection, and for each piece of the answer; longer than the deadline",
    )
    on_error: Literal["raise", "keep"] = Field(
        default="raise",
        description="Without an answer: raise SidecarError, or keep the order given and say so in metadata",
    )
    metadata_key: str = Field(default="cascade", min_length=1, description="Metadata key of what is told of a place")

    @field_validator("timeout_s")
    @classmethod
    def _outlasts(cls, timeout_s: float, info: ValidationInfo) -> float:
        deadline_ms = info.data.get("deadline_ms")
        if deadline_ms is not None and timeout_s * 1000 <= deadline_ms:
            raise ValueError("must be longer than deadline_ms")
        return timeout_s

    def known_scores(self, metadata: Mapping[str, Any]) -> dict[str, Any]:
        """Return what the metadata of a document holds under the keys of the channels."""
        return {channel: metadata.get(key) for channel, key in self.channels.items()}


class ScoredOptions(Options):
    """The options where a document has a score of its own beside its metadata."""

    channel: _Channel | None = Field(
        default="first_stage",
        validate_default=True,
        description="First-stage channel of the document's own score; None: it is not sent",
    )

    @field_validator("channel")
    @classmethod
    def _once(cls, channel: str | None, info: ValidationInfo) -> str | None:
        if channel is not None and channel in info.data.get("channels", {}):
            raise ValueError("is named in channels too")
        return channel

    def all_scores(self, score: Any, metadata: Mapping[str, Any]) -> dict[str, Any]:
        """Return what is known under the keys of the channels, and the document's own score."""
        known = self.known_scores(metadata)
        return known if self.channel is None else known | {self.channel: score}
