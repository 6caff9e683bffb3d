"""Certificates in files, as an operator has them."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from pathlib import Path

import trustme
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

__all__ = ["NOW", "Files", "encrypted", "issued"]

NOW = dt.datetime.now(dt.UTC)


@dataclass(frozen=True, slots=True)
class Files:
    """Where a certificate and its key are."""

    certificate: Path
    key: Path


def issued(
    folder: Path, authority: trustme.CA, name: str = "127.0.0.1", *, days: float = 90, begins_in_days: float = -1
) -> Files:
    """Write a certificate of an authority and its key, in place of any that are there."""
    made = authority.issue_cert(
        name,
        not_before=NOW + dt.timedelta(days=begins_in_days),
        not_after=NOW + dt.timedelta(days=days),
    )
    folder.mkdir(exist_ok=True)
    files = Files(folder / "tls.crt", folder / "tls.key")
    files.certificate.write_bytes(b"".join(each.bytes() for each in made.cert_chain_pems))
    files.key.write_bytes(made.private_key_pem.bytes())
    return files


def encrypted(files: Files, password: bytes) -> None:
    """Put a password on a key."""
    key = load_pem_private_key(files.key.read_bytes(), None)
    how = BestAvailableEncryption(password)
    files.key.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, how))
