"""Certificates and keys from files: loaded into contexts of TLS, and tried before anything is served with them."""

from __future__ import annotations

import contextlib
import re
import ssl
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from cascade.errors import ConfigError

__all__ = [
    "KeyPair",
    "Pem",
    "RenewedContext",
    "chain_faults",
    "client_context",
    "expires_at",
    "in_short",
    "server_context",
]

_MOST_BYTES: Final = 1_000_000
_BLOCK: Final = re.compile(rb"-----BEGIN CERTIFICATE-----[A-Za-z0-9+/=\s]+-----END CERTIFICATE-----")
_NO_CHECK_TIME: Final = 0x200000
"""X509_V_FLAG_NO_CHECK_TIME, which Python does not name."""
_MOST_TOLD: Final = 3
_FLIGHTS: Final = 8
"""More than a handshake has, of either version."""
_WHY: Final = {
    9: "is not valid yet",
    10: "has expired",
    26: "is not for this end of a connection",
}
"""Codes of X509_V_ERR_* that are told in words."""


@dataclass(frozen=True, slots=True)
class Pem:
    """A file, and what names it: for errors."""

    name: str
    path: Path

    def __str__(self) -> str:
        return f"{self.name} {self.path}"

    def check(self, begins: bytes, holds: str) -> None:
        """Raise ConfigError where it cannot be read, or holds nothing of the kind."""
        if begins not in self.read():
            raise ConfigError(f"{self}: holds no {holds} in PEM")

    def read(self) -> bytes:
        """Return what it holds. Raises ConfigError."""
        try:
            with self.path.open("rb") as stream:
                data = stream.read(_MOST_BYTES + 1)
        except OSError as error:
            raise ConfigError(f"{self}: cannot be read: {type(error).__name__}") from None
        if len(data) > _MOST_BYTES:
            raise ConfigError(f"{self}: has more than {_MOST_BYTES} bytes")
        return data


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A certificate with those that lead to its authority, its private key, and the password of that where it has one."""

    certificate: Pem
    key: Pem
    password: Pem | None = None

    @property
    def files(self) -> list[Path]:
        """Return all files that it is read from."""
        return [each.path for each in (self.certificate, self.key, self.password) if each is not None]


class RenewedContext(ssl.SSLContext):
    """Hand every new connection to the context of the moment, whole: certificate, key and authorities.

    Loading a renewed chain into a context in use could leave it with half of one, and its authorities can only grow.
    """

    current: ssl.SSLContext

    def __new__(cls, current: ssl.SSLContext) -> Self:
        made = super().__new__(cls, current.protocol)
        made.current = current
        return made

    def wrap_bio(self, *args: Any, **kwargs: Any) -> ssl.SSLObject:
        """Begin a connection over the context of the moment."""
        return self.current.wrap_bio(*args, **kwargs)


def server_context(pair: KeyPair, client_ca: Pem | None) -> ssl.SSLContext:
    """Return a listener's context, TLS 1.2 or newer; with ``client_ca`` it asks every client for a certificate.

    Raises ConfigError for files that cannot be used: of another key, expired, not yet valid, or not for a server. The dates
    and the signature of the one that issued the certificate count too, where it is in the file; of those behind it `chain_faults` tells.
    """
    context = _loaded(ssl.PROTOCOL_TLS_SERVER, pair)
    context.options |= ssl.OP_NO_RENEGOTIATION
    _shown(pair, context)
    if client_ca is not None:
        client_ca.check(b"-----BEGIN CERTIFICATE-----", "certificate")
        context.verify_mode = ssl.CERT_REQUIRED
        try:
            context.load_verify_locations(cafile=client_ca.path)
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(f"{client_ca}: cannot be used: {type(error).__name__}") from None
        held = context.cert_store_stats()
        if held["x509_ca"] < held["x509"]:
            raise ConfigError(f"{client_ca}: holds a certificate that is no authority's (basicConstraints CA:TRUE)")
    return context


def client_context(ca: Pem | None, pair: KeyPair | None) -> ssl.SSLContext:
    """Return what asks a server: its certificate must lead to ``ca``, else to the system's authorities.

    Raises ConfigError as `server_context` does, for a certificate that is for a client.
    """
    try:
        context = ssl.create_default_context(cafile=None if ca is None else ca.path)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"{ca}: cannot be used: {type(error).__name__}") from None
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if pair is not None:
        expires_at(pair, for_server=False)
        _load(context, pair)
    return context


def expires_at(pair: KeyPair, *, for_server: bool) -> float:
    """Return when a certificate, or one of those that lead to its authority, ends: in seconds since 1970.

    Raises ConfigError as `server_context` does.
    """
    if for_server:
        told = _shown(pair, _loaded(ssl.PROTOCOL_TLS_SERVER, pair))
    else:
        asking = _loaded(ssl.PROTOCOL_TLS_CLIENT, pair)
        asking.check_hostname, asking.verify_mode = False, ssl.CERT_NONE  # of itself, in memory
        asked = _trusting(ssl.PROTOCOL_TLS_SERVER, pair)
        _load(asked, pair)
        told = _handshake(pair, asked, asking)
    chain = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    chain.load_verify_locations(cafile=pair.certificate.path)
    ends = [str(each["notAfter"]) for each in (told, *chain.get_ca_certs())]
    return min(float(ssl.cert_time_to_seconds(each)) for each in ends)


def chain_faults(pair: KeyPair, now: float) -> list[str]:
    """Return what is amiss with the certificates behind a listener's own, by which clients find its authority.

    One has expired or is not valid yet, is no authority's, or has not issued the one before it; ``now`` is in seconds since
    1970. Raises ConfigError as `server_context` does, but for dates.
    """
    blocks = [block.decode() for block in _BLOCK.findall(pair.certificate.read())]
    if len(blocks) < 2:
        return []
    server = _loaded(ssl.PROTOCOL_TLS_SERVER, pair)
    faults: list[str] = []
    issuer, leads = _handshake(pair, server, _timeless(pair))["issuer"], True
    for number, block in enumerate(blocks[1:], 2):
        told = _authority(block)
        if told is None:  # of what stands behind it nothing can be said
            return [*faults, f"certificate {number} is no authority's"]
        which = f"certificate {number} ({_named(told['subject'])})"
        if now < ssl.cert_time_to_seconds(told["notBefore"]):
            faults.append(f"{which} is not valid before {told['notBefore']}")
        if now > ssl.cert_time_to_seconds(told["notAfter"]):
            faults.append(f"{which} expired {told['notAfter']}")
        if _folded(told["subject"]) != _folded(issuer):
            faults.append(f"{which} has not issued the one before it")
            leads = False
        issuer = told["issuer"]
    if leads and (why := _why_not_to(blocks[-1], pair, server)) is not None:
        faults.append(f"the first does not lead to the last: {why}")
    return faults


def in_short(faults: Sequence[str]) -> str:
    """Return the first few of what is amiss, and how much more there is: a file may hold hundreds of certificates."""
    more = len(faults) - _MOST_TOLD
    return "; ".join([*faults[:_MOST_TOLD], *([f"and {more} more"] if more > 0 else [])])


def _shown(pair: KeyPair, server: ssl.SSLContext) -> dict[str, Any]:
    """Return what a listener's certificate says. Raises ConfigError for it and for the one that issued it, and names that."""
    try:
        return _handshake(pair, server, _trusting(ssl.PROTOCOL_TLS_CLIENT, pair))
    except ConfigError as error:
        why = in_short([str(error), *chain_faults(pair, time.time())])
    raise ConfigError(why)


def _why_not_to(last: str, pair: KeyPair, server: ssl.SSLContext) -> str | None:
    """Return why a client that trusts the last certificate alone would not trust the first, None where it would; dates aside."""
    try:
        _handshake(pair, server, _timeless(pair, only=last))
    except ConfigError as error:
        return str(error).removeprefix(f"{pair.certificate}: ")
    return None


def _timeless(pair: KeyPair, *, only: str | None = None) -> ssl.SSLContext:
    """Return a client as `_trusting` does, to which dates are nothing."""
    client = _trusting(ssl.PROTOCOL_TLS_CLIENT, pair, only=only)
    client.verify_flags |= ssl.VerifyFlags(_NO_CHECK_TIME)
    return client


def _authority(block: str) -> dict[str, Any] | None:
    """Return what a certificate says, None where it is no authority's."""
    holding = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        holding.load_verify_locations(cadata=block)
    except (ValueError, ssl.SSLError):
        return None
    return next(iter(holding.get_ca_certs()), None)


def _named(subject: Any) -> str:
    fields = dict(field for fields in subject for field in fields)
    return str(fields.get("commonName") or fields.get("organizationName") or "without a name")


def _folded(name: Any) -> str:
    """Return a name as it is compared: case and runs of spaces do not count."""
    return " ".join(str(name).casefold().split())


def _loaded(protocol: int, pair: KeyPair) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    _load(context, pair)
    return context


def _load(context: ssl.SSLContext, pair: KeyPair) -> None:
    pair.certificate.check(b"-----BEGIN CERTIFICATE-----", "certificate")
    pair.key.check(b"PRIVATE KEY-----", "private key")
    password = b"" if pair.password is None else pair.password.read().strip(b"\r\n")
    asked = False

    def tell() -> bytes:  # without it, OpenSSL would ask the terminal
        nonlocal asked
        asked = True
        return password

    try:
        context.load_cert_chain(pair.certificate.path, pair.key.path, tell)
    except (OSError, ValueError) as error:
        raise ConfigError(_unloadable(pair, error, asked=asked)) from None


def _unloadable(pair: KeyPair, error: Exception, *, asked: bool) -> str:
    reason = getattr(error, "reason", None)
    if reason == "KEY_VALUES_MISMATCH":
        return f"{pair.key}: is not the key of {pair.certificate}"
    if asked:
        needs = "is encrypted, and no password is named" if pair.password is None else "is not opened by its password"
        return f"{pair.key}: {needs}"
    return f"{pair.certificate}, {pair.key}: cannot be used: {reason or type(error).__name__}"


def _trusting(protocol: int, pair: KeyPair, *, only: str | None = None) -> ssl.SSLContext:
    """Return what trusts the certificates of a pair for themselves, or one of them, so that all else is looked at."""
    context = ssl.SSLContext(protocol)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    try:
        context.load_verify_locations(cafile=None if only else pair.certificate.path, cadata=only)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"{pair.certificate}: cannot be used: {type(error).__name__}") from None
    return context


def _handshake(pair: KeyPair, server: ssl.SSLContext, client: ssl.SSLContext) -> dict[str, Any]:
    """Connect the two in memory; return what the certificate says that one of them shows. Raises ConfigError."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (client.wrap_bio(to_client, to_server), server.wrap_bio(to_server, to_client, server_side=True))
    try:
        for _ in range(_FLIGHTS):
            for end in ends:
                with contextlib.suppress(ssl.SSLWantReadError):
                    end.do_handshake()
    except ssl.SSLCertVerificationError as error:
        raise ConfigError(f"{pair.certificate}: {_WHY.get(error.verify_code, error.verify_message)}") from None
    except ssl.SSLError as error:
        raise ConfigError(f"{pair.certificate}: cannot be used: {error.reason}") from None
    return next(filter(None, (end.getpeercert() for end in ends)), {})
