"""Handshakes of TLS that fail: counted by cause, and told in the log. The event loop ends such a connection without a word."""

from __future__ import annotations

import math
import ssl
from collections import Counter
from collections.abc import Callable
from typing import Final

from cascade.telemetry.listener_metrics import HandshakeFailure
from cascade.telemetry.logs import note

__all__ = ["Handshakes", "failure_of"]

_QUIET_S: Final = 60.0
"""A client that is refused tries again and again: a listener writes one line in this time."""
_NOT_TLS: Final = {"HTTP_REQUEST", "HTTPS_PROXY_REQUEST", "WRONG_VERSION_NUMBER"}
"""What OpenSSL says of bytes that begin no handshake."""


class Handshakes:
    """Count the handshakes of a listener that fail, and log them: the first at once, others a minute later or more, by cause."""

    def __init__(self, listener: str, count: Callable[[HandshakeFailure], None], clock: Callable[[], float]) -> None:
        self._listener = listener
        self._count = count
        self._clock = clock
        self._untold: Counter[HandshakeFailure] = Counter()
        self._told = -math.inf

    def watch(self, context: ssl.SSLContext) -> ssl.SSLContext:
        """Have the connections of a context tell of their handshakes; return the context."""
        tell = self._tell

        class Told(ssl.SSLObject):
            def do_handshake(self) -> None:
                try:
                    super().do_handshake()
                except (ssl.SSLWantReadError, ssl.SSLWantWriteError):  # it goes on
                    raise
                except ssl.SSLError as error:
                    tell(failure_of(error))
                    raise

        context.sslobject_class = Told
        return context

    def _tell(self, failure: HandshakeFailure) -> None:
        self._count(failure)
        self._untold[failure] += 1
        now = self._clock()
        if now - self._told < _QUIET_S:
            return
        self._told = now
        counts = {str(each): count for each, count in sorted(self._untold.items())}
        self._untold.clear()
        note("warning", "handshakes failed", listener=self._listener, **counts)


def failure_of(error: ssl.SSLError) -> HandshakeFailure:
    """Return why a handshake failed, of what OpenSSL says."""
    reason = error.reason or ""
    if isinstance(error, ssl.SSLCertVerificationError):
        return HandshakeFailure.UNTRUSTED
    if reason == "PEER_DID_NOT_RETURN_A_CERTIFICATE":
        return HandshakeFailure.NO_CERTIFICATE
    if reason in _NOT_TLS:
        return HandshakeFailure.NOT_TLS
    return HandshakeFailure.BROKEN_OFF if "_ALERT_" in reason else HandshakeFailure.OTHER
