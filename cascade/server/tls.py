"""The TLS of a listener: its certificate, key and authorities of clients, read again when they are renewed."""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Literal

from cascade.server.handshakes import Handshakes
from cascade.server.settings import Settings
from cascade.stages.certificates import KeyPair, Pem, RenewedContext, chain_faults, expires_at, in_short, server_context
from cascade.telemetry.logs import note
from cascade.telemetry.rereading import Reread

__all__ = ["LISTENERS", "Listener", "ListenerTls", "TlsFiles", "check_tls", "open_tls", "tls_files"]

Listener = Literal["public", "admin"]
LISTENERS: Final[tuple[Listener, ...]] = ("public", "admin")


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """The files that settings name for a listener."""

    pair: KeyPair
    client_ca: Pem | None

    @property
    def paths(self) -> list[Path]:
        """Return all of them."""
        return [*self.pair.files, *([] if self.client_ca is None else [self.client_ca.path])]


@dataclass(frozen=True, slots=True)
class _Read:
    context: ssl.SSLContext
    expires: float
    chain_faults: list[str]


class ListenerTls:
    """Hold what a listener speaks TLS with. Files that cannot be used leave it as it was; at the start they are a ConfigError.

    ``handshakes`` are told of those that fail.
    """

    def __init__(
        self,
        files: TlsFiles,
        *,
        reloaded: Callable[[bool], None] = lambda good: None,
        handshakes: Handshakes | None = None,
    ) -> None:
        def read() -> _Read:
            context = server_context(files.pair, files.client_ca)
            ends = expires_at(files.pair, for_server=True)
            chain = chain_faults(files.pair, time.time())
            return _Read(context if handshakes is None else handshakes.watch(context), ends, chain)

        self._read = Reread(
            files.paths,
            read,
            what="certificates",
            setting=files.pair.certificate.name,
            reloaded=reloaded,
        )
        self._certificate = files.pair.certificate
        self.asks_clients = files.client_ca is not None
        self.context = RenewedContext(self._read.held.context)

    @property
    def expires(self) -> float:
        """Return when the certificate ends, in seconds since 1970."""
        return self._read.held.expires

    @property
    def chain_faults(self) -> list[str]:
        """Return what is amiss with the certificates behind the listener's own, by which clients find its authority."""
        return [f"{self._certificate}: {fault}" for fault in self._read.held.chain_faults]

    def tell(self) -> None:
        """Tell that in the log, in one line: it is served all the same, and there may be clients that do not trust it."""
        faults = self._read.held.chain_faults
        if faults:
            ends = datetime.fromtimestamp(self.expires, UTC).isoformat()
            note(
                "warning",
                "certificate chain",
                setting=self._certificate.name,
                why=in_short(faults),
                faults=len(faults),
                first_ends=ends,
            )

    def look(self) -> None:
        """Read the files again if one has changed; connections that begin from then on have what they hold."""
        before = self._read.held
        self._read.look()
        self.context.current = self._read.held.context
        if self._read.held is not before:
            self.tell()

    async def watch(self, seconds: float) -> None:
        """Look again and again, ``seconds`` apart."""
        await self._read.watch(seconds, self.look)


def tls_files(settings: Settings, listener: Listener) -> TlsFiles | None:
    """Return the files of a listener's TLS, None where settings want none."""
    prefix = "tls_" if listener == "public" else "admin_tls_"

    def named(what: str) -> Pem | None:
        path = getattr(settings, prefix + what)
        return None if path is None else Pem(prefix + what, path)

    certificate, key = named("certificate_file"), named("key_file")
    if certificate is None or key is None:
        return None
    return TlsFiles(KeyPair(certificate, key, named("key_password_file")), named("client_ca_file"))


def open_tls(
    settings: Settings,
    listener: Listener,
    reloaded: Callable[[bool], None] = lambda good: None,
    handshakes: Handshakes | None = None,
) -> ListenerTls | None:
    """Return the TLS of a listener, None where settings want none. Raises ConfigError."""
    files = tls_files(settings, listener)
    return None if files is None else ListenerTls(files, reloaded=reloaded, handshakes=handshakes)


def check_tls(settings: Settings) -> list[str]:
    """Read the files of TLS that settings name; return what is amiss with chains in them. Raises ConfigError."""
    opened = [open_tls(settings, listener) for listener in LISTENERS]
    return [fault for tls in opened if tls is not None for fault in tls.chain_faults]
