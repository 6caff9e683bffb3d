"""The TLS of a listener: its certificate, key and authorities of clients, read again when they are renewed."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from cascade.server.handshakes import Handshakes
from cascade.server.settings import Settings
from cascade.stages.certificates import KeyPair, Pem, RenewedContext, expires_at, server_context
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
            return _Read(context if handshakes is None else handshakes.watch(context), ends)

        self._read = Reread(
            files.paths,
            read,
            what="certificates",
            setting=files.pair.certificate.name,
            reloaded=reloaded,
        )
        self.asks_clients = files.client_ca is not None
        self.context = RenewedContext(self._read.held.context)

    @property
    def expires(self) -> float:
        """Return when the certificate ends, in seconds since 1970."""
        return self._read.held.expires

    def look(self) -> None:
        """Read the files again if one has changed; connections that begin from then on have what they hold."""
        self._read.look()
        self.context.current = self._read.held.context

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


def check_tls(settings: Settings) -> None:
    """Read the files of TLS that settings name. Raises ConfigError."""
    for listener in LISTENERS:
        open_tls(settings, listener)
