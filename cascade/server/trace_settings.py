"""Settings of traces: whether they are made, where they go, and which of them."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from cascade.server.listener_settings import ListenerSettings
from cascade.telemetry.tracer import Keep

__all__ = ["TraceSettings"]


class TraceSettings(ListenerSettings):
    """What is traced, and where spans go."""

    tracing: Literal["off", "otlp"] = Field(
        default="off",
        description="Whether requests are traced: not at all, or with spans sent by OTLP over HTTP, which needs "
        'the extra `otel` (in a clone: `pip install ".[otel]"`)',
    )
    trace_endpoint: str | None = Field(
        default=None,
        description="Address of the collector, `/v1/traces` added where it has no path; unset: OpenTelemetry's variables "
        "say, else http://localhost:4318",
    )
    trace_headers_file: Path | None = Field(
        default=None,
        description="File of headers for the collector, `name: value` a line, read at the start; unset: "
        "OTEL_EXPORTER_OTLP_HEADERS alone",
    )
    trace_ratio: float = Field(
        default=1.0, ge=0, le=1, description="Share of the requests that are traced, where no caller has decided it"
    )
    trace_trust_parent: bool = Field(
        default=False,
        description="Whether a caller's sampled `traceparent` is followed whatever the share; one that is not sampled always is",
    )
    trace_keep: tuple[Keep, ...] = Field(
        default=(),
        description="What a request is traced for all the same, known at its end; in one string with commas between. It "
        "costs recording every request",
    )
    trace_slow_ms: float | None = Field(
        default=None, gt=0, le=600_000, description="Time from which a request is slow, for `trace_keep`"
    )
    trace_baggage: bool = Field(
        default=False, description="Whether a caller's `baggage` is passed on to servers, whatever it holds"
    )
    trace_queue: int = Field(
        default=8192, ge=512, description="Spans that may wait to be sent; a trace that finds no room is dropped"
    )

    @field_validator("tracing", mode="before")
    @classmethod
    def _tracing_off(cls, value: object) -> object:
        return "off" if value is False else value  # YAML reads a bare off so

    @field_validator("trace_keep", mode="before")
    @classmethod
    def _keeps(cls, value: object) -> object:
        return [each.strip() for each in value.split(",") if each.strip()] if isinstance(value, str) else value

    @field_validator("trace_endpoint")
    @classmethod
    def _without_credential(cls, value: str | None) -> str | None:
        if value is None:
            return None
        try:
            parts = urlsplit(value)
            is_address = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
        except ValueError:  # its text may hold the address, and with it a credential
            is_address = False
        if not is_address:
            raise ValueError("must be an http(s) address")
        if "@" in parts.netloc or parts.query or parts.fragment:
            raise ValueError("no credential belongs here; headers are named by trace_headers_file")
        return value

    @model_validator(mode="after")
    def _what_is_slow(self) -> Self:
        if (Keep.SLOW in self.trace_keep) != (self.trace_slow_ms is not None):
            raise ValueError("trace_keep, trace_slow_ms: slow needs a time, and the time needs slow")
        return self
