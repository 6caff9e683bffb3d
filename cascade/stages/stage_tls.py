"""The TLS of a stage: whom it trusts, and what it shows to a server that asks for it."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import time
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from cascade.policy.release import HttpStage
from cascade.stages.certificates import KeyPair, Pem, RenewedContext, client_context, expires_at
from cascade.telemetry.rereading import Reread

__all__ = ["Expiries", "expiries", "stage_context"]

_LOOK_SECONDS: Final = 60.0
_CONNECT_SECONDS: Final = 5.0

Expiries = dict[str, float]
"""When certificates end, in seconds since 1970, by what they are."""


class _LookedAgain(RenewedContext):
    """Look whether the files were renewed as connections begin, a minute apart at least.

    They are small and on this machine, and connections are kept: nothing waits for this in between.
    """

    read: Reread[ssl.SSLContext]
    looked: float

    def wrap_bio(self, *args: Any, **kwargs: Any) -> ssl.SSLObject:
        """Begin a connection."""
        now = time.monotonic()
        if now - self.looked >= _LOOK_SECONDS:
            self.looked = now
            self.read.look()
            self.current = self.read.held
        return super().wrap_bio(*args, **kwargs)


def stage_context(spec: HttpStage) -> ssl.SSLContext:
    """Return what a stage's connections are made with; there is none that trusts every server. Raises ConfigError."""
    ca = None if spec.ca_bundle is None else Pem("ca_bundle", Path(spec.ca_bundle))
    pair = _pair(spec)
    if ca is None and pair is None:
        return client_context(None, None)
    files = [*([] if ca is None else [ca.path]), *([] if pair is None else pair.files)]
    read = Reread(files, lambda: client_context(ca, pair), what="certificates", setting=f"stage {spec.url}")
    context = _LookedAgain(read.held)
    context.read, context.looked = read, time.monotonic()
    return context


async def expiries(spec: HttpStage) -> Expiries:
    """Return when the certificates of a stage end: the one that it shows, and its server's where that can be asked."""
    found: Expiries = {}
    if (pair := _pair(spec)) is not None:
        found["client certificate"] = expires_at(pair, for_server=False)
    parts = urlsplit(spec.url)
    if parts.scheme == "https":
        with contextlib.suppress(OSError, TimeoutError):  # a server that is not there is told of elsewhere
            async with asyncio.timeout(_CONNECT_SECONDS):
                found["server certificate"] = await _shown(str(parts.hostname), parts.port or 443, stage_context(spec))
    return found


async def _shown(host: str, port: int, context: ssl.SSLContext) -> float:
    _, writer = await asyncio.open_connection(host, port, ssl=context)
    try:
        return float(ssl.cert_time_to_seconds(str(writer.get_extra_info("peercert")["notAfter"])))
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


def _pair(spec: HttpStage) -> KeyPair | None:
    shown = spec.client_certificate
    if shown is None:
        return None
    password = None if shown.key_password is None else Pem("client_certificate.key_password", Path(shown.key_password))
    return KeyPair(
        Pem("client_certificate.certificate", Path(shown.certificate)),
        Pem("client_certificate.key", Path(shown.key)),
        password,
    )
