"""Secrets of hashes, from files."""

from __future__ import annotations

import secrets
from pathlib import Path

from cascade.errors import ConfigError

__all__ = ["secret_of"]


def secret_of(file: Path | None, setting: str) -> bytes:
    """Return what a file holds, or random bytes where none is named. Raises ConfigError, which names the setting.

    Text is taken without the white space around it, which editors add; bytes that are none as they are.
    """
    if file is None:
        return secrets.token_bytes(32)
    try:
        secret = file.read_bytes()
    except OSError as error:
        raise ConfigError(f"{setting}: cannot be read: {type(error).__name__}") from None
    if secret.isascii() and secret.decode("ascii").strip().isprintable():
        secret = secret.strip()
    if not 16 <= len(secret) <= 64:
        raise ConfigError(f"{setting}: a key has 16 to 64 bytes")
    return secret
