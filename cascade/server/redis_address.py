"""The address of a Redis, or where it is held."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from cascade.errors import ConfigError

__all__ = ["checked_reference", "redis_address"]

_SCHEMES: Final = ("redis://", "rediss://", "unix://")
_FROM_VARIABLE: Final = "env:"
_FROM_FILE: Final = "file:"


def checked_reference(value: str) -> str:
    """Return an address without a credential, or the name of what holds one.

    Raises ValueError, which does not repeat it.
    """
    if value.startswith(_FROM_VARIABLE) and value.removeprefix(_FROM_VARIABLE).isidentifier():
        return value
    if value.startswith(_FROM_FILE) and Path(value.removeprefix(_FROM_FILE)).is_absolute():
        return value
    if not value.startswith(_SCHEMES):
        raise ValueError(
            "must begin with redis://, rediss:// or unix://, or name what holds that: env:NAME, file:/path"
        )
    if "@" in value or "?" in value:
        raise ValueError("no credential belongs here; name what holds the address: env:NAME, file:/path")
    return value


def redis_address(reference: str, environment: Mapping[str, str]) -> str:
    """Return the address that a checked reference leads to. Raises ConfigError, which does not repeat it."""
    if reference.startswith(_FROM_VARIABLE):
        name = reference.removeprefix(_FROM_VARIABLE)
        address, place = environment.get(name, ""), f"the environment variable {name}"
    elif reference.startswith(_FROM_FILE):
        path = reference.removeprefix(_FROM_FILE)
        place = f"the file {path}"
        try:
            address = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"cache_redis_url: {place} cannot be read: {type(error).__name__}") from None
    else:
        return reference
    if not address.strip().startswith(_SCHEMES):
        raise ConfigError(f"cache_redis_url: {place} holds no address of a Redis")
    return address.strip()
