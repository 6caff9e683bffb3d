"""Settings: where the sidecar listens and what it reads and writes. Behaviour is a release's."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal, Self

from pydantic import (
    Field,
    ValidationError,
    ValidationInfo,
    field_serializer,
    field_validator,
    model_validator,
)

from cascade.calibration.broken_rules import broken_rule
from cascade.errors import ConfigError
from cascade.rollout.nameable import DEFAULT_FILES, DEFAULT_VARIABLES, checked_files, checked_variables
from cascade.rollout.sources.address import checked_place, shown_place
from cascade.rollout.strict_yaml import read_mapping
from cascade.server.redis_address import checked_reference
from cascade.server.trace_settings import TraceSettings

__all__ = ["ENVIRONMENT_PREFIX", "Settings", "load_settings"]

ENVIRONMENT_PREFIX: Final = "CASCADE__"
"""Two underscores: an orchestrator that announces a service named cascade sets CASCADE_PORT and the like."""


class Settings(TraceSettings):
    """Every setting, with its default. Precedence: flag, environment, file, default."""

    release: Path | str | None = Field(
        default=None,
        description="Release in YAML, or a bundle: folder, .tar, or the http(s) address of a .tar; unset: the packaged one",
    )
    watch_release: bool = Field(
        default=False, description="Whether `release` is looked at again and again, and what it becomes is rolled out"
    )
    release_seconds: float = Field(
        default=30.0,
        gt=0,
        le=86_400,
        description="Time between two looks at `release`, a fifth more or less; a folder's events are only a hint to look sooner",
    )
    release_auth_file: Path | None = Field(
        default=None, description="File of the bearer token that the address of `release` asks for, read at each look"
    )
    release_keys_file: Path | None = Field(
        default=None,
        description="File of public keys in PEM: only a bundle that is signed with one of them is served or rolled out; "
        "unset: signatures are not asked for",
    )
    release_variables: tuple[str, ...] = Field(
        default=DEFAULT_VARIABLES,
        description="Environment variables that a release may name: names, or beginnings of names before a `*`; in one string "
        "with commas between. Those of settings never",
    )
    release_files: tuple[str, ...] = Field(
        default=DEFAULT_FILES,
        description="Files of secrets that a release may name: absolute paths, folders before `/*`, or with all below before "
        "`/**`; in one string with commas between. Those of settings never",
    )
    releases_folder: Path | None = Field(
        default=None, description="Folder of bundles that `rollout start` may name by digest or by name"
    )
    state_folder: Path | None = Field(
        default=None,
        description="Folder of this process alone that keeps good releases and where a rollout stands, for the next start; "
        "unset: nothing is kept",
    )
    strict_activation: bool = Field(
        default=True, description="Whether a release is rolled out only where `verify` has no warning either"
    )
    level: str | None = Field(
        default=None,
        description="Load level of the release that every request is decided by; unset: load steps through them",
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(default="info", description="Least level logged")
    log_file: Path | None = Field(default=None, description="File that log lines are appended to; unset: stderr")
    max_body_bytes: int = Field(default=8_000_000, ge=1024, description="Largest request body")
    body_seconds: float = Field(
        default=10.0,
        gt=0,
        le=600,
        description="Longest time to read a body, where the deadline is not shorter; then the answer is 408",
    )
    keys_file: Path | None = Field(
        default=None, description="File of API keys of the public listener, in YAML or JSON; unset: it is open to all"
    )
    admin_keys_file: Path | None = Field(
        default=None, description="The same of the admin listener; it may be the same file"
    )
    keys_seconds: float = Field(
        default=5.0,
        gt=0,
        le=86_400,
        description="Time between two looks at whether a file of keys, or of a listener's TLS, has changed",
    )
    max_requests: int = Field(
        default=4096,
        ge=1,
        description="Requests held at a time, from their head to their answer; more get 503 before their body is read",
    )
    max_in_flight: int = Field(
        default=64,
        ge=1,
        description="Seats: requests that ask stages at a time, a body of many queries with several; more wait, in fair order",
    )
    max_queued: int = Field(
        default=256,
        ge=0,
        description="Requests that may wait so; where it is full, one is answered in first-stage order",
    )
    long_request_bytes: int = Field(
        default=262_144, ge=1, description="Body size from which a request waits in the lane of long ones"
    )
    max_long_in_flight: int | None = Field(
        default=None, ge=1, description="Of max_in_flight, those that may be long; unset: a quarter, at least one"
    )
    rerank_dialect: Literal["vllm", "infinity"] = Field(
        default="vllm", description="Whose format /rerank with documents speaks; with texts it is TEI's"
    )
    drain_seconds: float = Field(
        default=2.0, ge=0, le=600, description="Time between failing readiness and refusing connections at a stop"
    )
    leftover_seconds: float = Field(
        default=20.0,
        ge=0,
        le=600,
        description="Time that what is under way then may take to end by itself; after it, every request is answered with "
        "the best order so far",
    )
    embedded_threads: int | None = Field(
        default=None, ge=1, description="Threads for embedded stages; unset: one for each core this process may use"
    )
    fingerprint_seconds: float = Field(
        default=60.0,
        gt=0,
        le=86_400,
        description="Time between two looks at what a server says of itself; one that changed ends the calibration's use",
    )
    query_hash_key_file: Path | None = Field(
        default=None, description="File with the key of query hashes; unset: a new random key at each start"
    )
    record_file: Path | None = Field(
        default=None,
        description="File that decision records are appended to, by this process alone; Parquet where it ends in .parquet, "
        "else lines of JSON; unset: no records",
    )
    record_sample: float = Field(
        default=1.0, ge=0, le=1, description="Share of queries that are recorded, always the same ones under one key"
    )
    record_max_bytes: int = Field(
        default=100_000_000,
        ge=1024,
        description="Size at which a file of records is rotated; of Parquet, that of the lines that it is made of",
    )
    record_seconds: float | None = Field(
        default=None,
        gt=0,
        le=31_536_000,
        description="Age at which a file of records is rotated; unset: of Parquet an hour, of lines of JSON none",
    )
    record_files: int = Field(
        default=10, ge=1, le=1000, description="Files of records kept, the one being written among them"
    )
    record_queue: int = Field(default=1000, ge=1, description="Records that may wait to be written; more are dropped")
    observe_in_flight: int = Field(
        default=16, ge=1, description="Requests that the small stage scores at a time beside answers, in mode observe"
    )
    cache: Literal["memory", "redis", "off"] = Field(
        default="memory",
        description="Where scores are kept: in this process, in a Redis that replicas share, or not at all",
    )
    cache_stages: Literal["all", "small", "large"] = Field(
        default="all", description="Stages whose scores are kept; those of a bi-encoder never are, it keeps vectors"
    )
    cache_ttl_seconds: float = Field(
        default=3600.0, gt=0, le=2_592_000, description="Time that a score is kept, at most"
    )
    cache_bytes: int = Field(
        default=67_108_864,
        ge=65_536,
        description="Memory for kept scores, 336 bytes each; a Redis has a limit of its own",
    )
    cache_redis_url: str | None = Field(
        default=None,
        description="Address of the Redis: `redis://`, `rediss://` or `unix://`; one with a password is named by "
        "`env:NAME` or `file:/path`, which hold it",
    )
    cache_redis_ms: float = Field(
        default=5.0, gt=0, le=1000, description="Longest time that a round waits for the Redis, within its deadline"
    )
    cache_redis_queue: int = Field(
        default=20_000, ge=1, description="Scores that may wait to be written to the Redis; more are dropped"
    )
    cache_key_file: Path | None = Field(
        default=None,
        description="File of 16 to 64 bytes, the secret behind what scores are kept under; unset: random at each start. A "
        "Redis needs one that all its replicas have",
    )

    @field_validator("release_variables", "release_files", mode="before")
    @classmethod
    def _listed(cls, value: object) -> object:
        return [each.strip() for each in value.split(",") if each.strip()] if isinstance(value, str) else value

    _variables = field_validator("release_variables")(checked_variables)
    _files = field_validator("release_files")(checked_files)

    @field_validator("release")
    @classmethod
    def _place(cls, value: Path | str | None) -> Path | str | None:
        return checked_place(value) if isinstance(value, str) else value

    @field_serializer("release", when_used="json-unless-none")
    def _shown(self, value: Path | str) -> str:
        return shown_place(value)

    @field_validator("cache", mode="before")
    @classmethod
    def _off(cls, value: object) -> object:
        return "off" if value is False else value  # YAML reads a bare off so

    @field_validator("cache_redis_url")
    @classmethod
    def _address_or_reference(cls, value: str | None) -> str | None:
        return None if value is None else checked_reference(value)

    @model_validator(mode="after")
    def _redis_to_share(self) -> Self:
        if self.cache == "redis" and (self.cache_redis_url is None or self.cache_key_file is None):
            raise ValueError("cache: redis needs cache_redis_url, and cache_key_file with the secret of all replicas")
        return self

    @model_validator(mode="after")
    def _release_to_watch(self) -> Self:
        if self.watch_release and self.release is None:
            raise ValueError("watch_release: there is no release to watch; name it in release")
        if self.release_auth_file is not None and not isinstance(self.release, str):
            raise ValueError("release_auth_file: release is no http(s) address that a token could be sent to")
        return self

    @field_validator("max_long_in_flight")
    @classmethod
    def _long_ones_fit(cls, value: int | None, info: ValidationInfo) -> int | None:
        if value is not None and value > info.data.get("max_in_flight", value):
            raise ValueError("must not be above max_in_flight")
        return value


def load_settings(
    flags: Mapping[str, Any], *, file: Path | None = None, environment: Mapping[str, str] | None = None
) -> Settings:
    """Join flags, environment, file and defaults. Raises ConfigError for an unknown key or a bad value.

    Flags that are None are not set. Every variable that begins with ``CASCADE__`` must be a setting.
    """
    values = _beside(file, _read_file(file)) if file is not None else {}
    values |= _read_environment(os.environ if environment is None else environment)
    values |= {name: value for name, value in flags.items() if value is not None}
    try:
        return Settings.model_validate(values)
    except ValidationError as error:
        faults = error.errors(include_url=False, include_input=False, include_context=False)
        told = (
            ": ".join(["settings", *filter(None, [".".join(map(str, one["loc"]))]), broken_rule(one)]) for one in faults
        )
        raise ConfigError("; ".join(told)) from None


def _read_file(path: Path) -> dict[str, Any]:
    try:
        return read_mapping(path)
    except ConfigError as error:
        raise ConfigError(f"settings {path}: {error}") from None


def _beside(file: Path, values: dict[str, Any]) -> dict[str, Any]:
    """Take a relative path in a settings file from the file's own folder."""
    names = (name for name in Settings.model_fields if name == "release" or name.endswith(("_file", "_folder")))
    paths = {name: values[name] for name in names if isinstance(values.get(name), str) and "://" not in values[name]}
    return values | {name: str(file.parent / value) for name, value in paths.items()}


def _read_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    return {
        name.removeprefix(ENVIRONMENT_PREFIX).lower(): value
        for name, value in environment.items()
        if name.startswith(ENVIRONMENT_PREFIX)
    }
