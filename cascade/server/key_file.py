"""The file of API keys."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Annotated, Final, Self

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, StrictInt, StrictStr, ValidationError, model_validator

from cascade.calibration.broken_rules import broken_rule
from cascade.errors import ConfigError
from cascade.policy.tenant_limits import TenantName
from cascade.rollout.strict_yaml import parse_mapping
from cascade.server.keys import Key, KeyRing, Right
from cascade.types import LOWEST_PRIORITY

__all__ = ["KeyEntry", "KeyFile", "parse_keys"]

_MOST_BYTES: Final = 1_000_000
_MOST_KEYS: Final = 1000


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class KeyEntry(_Strict):
    """One key: its hash, whose it is, and what it allows."""

    name: Annotated[StrictStr, Field(pattern=r"^[A-Za-z0-9._-]{1,64}$")] = Field(
        description="What it is called, here and in errors of this file; each its own"
    )
    sha256: Annotated[StrictStr, Field(pattern="^[0-9a-f]{64}$")] = Field(
        description="SHA-256 of the key, in hexadecimal, as `cascade keys new` prints it"
    )
    tenant: TenantName | None = Field(default=None, description="Whose requests are made with it")
    priority: Annotated[StrictInt, Field(ge=0, le=LOWEST_PRIORITY)] = Field(
        default=0, description="First class that its requests may wait in; 0 allows all"
    )
    expires: AwareDatetime | date | None = Field(
        default=None, description="From when on it opens nothing: a day (its beginning, UTC), or a time with its zone"
    )
    rights: Annotated[tuple[Right, ...], Field(min_length=1)] | None = Field(
        default=None,
        description="Unset: `rerank`. On the admin listener `read`, and `operate` for what changes something; `any-tenant` to name "
        "any tenant in a request",
    )

    def key(self) -> tuple[bytes, Key]:
        """Return the hash and what it opens."""
        expires = self.expires
        if expires is not None and not isinstance(expires, datetime):
            expires = datetime(expires.year, expires.month, expires.day, tzinfo=UTC)
        seconds = None if expires is None else expires.timestamp()
        return bytes.fromhex(self.sha256), Key(
            self.name, self.tenant, self.priority, seconds, frozenset(self.rights or (Right.RERANK,))
        )


class KeyFile(_Strict):
    """All keys of a listener. None at all is a mistake: it would shut everybody out."""

    keys: Annotated[tuple[KeyEntry, ...], Field(min_length=1, max_length=_MOST_KEYS)] = Field(description="The keys")

    @model_validator(mode="after")
    def _each_its_own(self) -> Self:
        for what, values in (("name", self._all("name")), ("sha256", self._all("sha256"))):
            if len(set(values)) < len(values):
                raise ValueError(f"two keys have the same {what}")
        return self

    def _all(self, what: str) -> Sequence[str]:
        return [getattr(key, what) for key in self.keys]


def parse_keys(path: Path) -> KeyRing:
    """Read a file of keys in YAML or JSON. Raises ConfigError, which repeats no value of it."""
    try:
        with path.open("rb") as stream:
            content = stream.read(_MOST_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"cannot be read: {type(error).__name__}") from None
    if len(content) > _MOST_BYTES:
        raise ConfigError(f"has more than {_MOST_BYTES} bytes")
    try:
        file = KeyFile.model_validate(parse_mapping(content))
    except ValidationError as error:
        faults = error.errors(include_url=False, include_input=False, include_context=False)
        told = (f"{'.'.join(map(str, fault['loc'])) or 'keys'}: {broken_rule(fault)}" for fault in faults[:3])
        raise ConfigError("; ".join(told)) from None
    return KeyRing([entry.key() for entry in file.keys])
