"""Certificates in files, as an operator has them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import trustme
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePrivateKey, generate_private_key
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

__all__ = ["NOW", "Files", "Signer", "chained", "encrypted", "issued", "signer"]

NOW = dt.datetime.now(dt.UTC)


@dataclass(frozen=True, slots=True)
class Files:
    """Where a certificate and its key are."""

    certificate: Path
    key: Path


@dataclass(frozen=True, slots=True)
class Signer:
    """An authority: its name, its certificate and its key."""

    name: str
    certificate: x509.Certificate
    key: EllipticCurvePrivateKey


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


def signer(name: str, by: Signer | None = None, *, days: float = 90, begins_in_days: float = -1) -> Signer:
    """Return an authority that another one signed, or without one that signed itself."""
    key = generate_private_key(SECP256R1())
    issuer = (name, key) if by is None else (by.name, by.key)
    return Signer(name, _signed(name, key, issuer, is_authority=True, days=days, begins_in_days=begins_in_days), key)


def chained(folder: Path, by: Signer, behind: Sequence[x509.Certificate]) -> Files:
    """Write a certificate that an authority signed, and its key, with others behind it."""
    key = generate_private_key(SECP256R1())
    shown = [_signed("127.0.0.1", key, (by.name, by.key), is_authority=False), *behind]
    files = Files(folder / "tls.crt", folder / "tls.key")
    files.certificate.write_bytes(b"".join(each.public_bytes(Encoding.PEM) for each in shown))
    files.key.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return files


def _signed(
    name: str,
    key: EllipticCurvePrivateKey,
    issuer: tuple[str, EllipticCurvePrivateKey],
    *,
    is_authority: bool,
    days: float = 90,
    begins_in_days: float = -1,
) -> x509.Certificate:
    return (
        x509.CertificateBuilder()
        .subject_name(_named(name))
        .issuer_name(_named(issuer[0]))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(NOW + dt.timedelta(days=begins_in_days))
        .not_valid_after(NOW + dt.timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
        .sign(issuer[1], SHA256())
    )


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
