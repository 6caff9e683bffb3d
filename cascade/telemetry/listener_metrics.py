"""Metrics of the two listeners: their connections, and their TLS."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from cascade.telemetry.declared import EXPERIMENTAL, Declaring

__all__ = ["HandshakeFailure", "ListenerMetrics"]

_LISTENERS: Final = ("public", "admin")


class HandshakeFailure(StrEnum):
    """Why a handshake of TLS failed. The list is closed.

    ``NO_CERTIFICATE``: the client shows none where one is asked for. ``UNTRUSTED``: the one it shows is of none of the
    authorities, or has ended. ``NOT_TLS``: it sends no TLS, such as plain HTTP. ``BROKEN_OFF``: the client ends it by an
    alert, as one does that does not trust the listener's certificate. ``OTHER``: such as no version that both speak.
    """

    NO_CERTIFICATE = "no_certificate"
    UNTRUSTED = "untrusted"
    NOT_TLS = "not_tls"
    BROKEN_OFF = "broken_off"
    OTHER = "other"


class ListenerMetrics:
    """Count connections, those that were too many, handshakes that failed, and readings of files of TLS."""

    def __init__(self, declare: Declaring) -> None:
        self.connections = declare.gauge(
            EXPERIMENTAL, "cascade_connections", "Connections at this moment, by listener", ["listener"]
        )
        refused = declare.counter(
            EXPERIMENTAL,
            "cascade_connections_refused",
            "Connections that were too many, of all or of one client's address, by listener",
            ["listener", "why"],
        )
        self._refused = {(each, why): refused.labels(each, why) for each in _LISTENERS for why in ("all", "client")}
        failed = declare.counter(
            EXPERIMENTAL,
            "cascade_tls_handshakes_failed",
            "Handshakes of TLS that failed, by listener and cause",
            ["listener", "why"],
        )
        self._failed = {(each, why): failed.labels(each, why) for each in _LISTENERS for why in HandshakeFailure}
        read = declare.counter(
            EXPERIMENTAL,
            "cascade_tls_read",
            "Times that the files of a listener's TLS were read again, by listener and result",
            ["listener", "result"],
        )
        self._read = {(each, result): read.labels(each, result) for each in _LISTENERS for result in ("ok", "failed")}
        self.expiry = declare.gauge(
            EXPERIMENTAL,
            "cascade_tls_expiry_timestamp_seconds",
            "When the certificate of a listener, or one that leads to its authority, ends: seconds since 1970; none without TLS",
            ["listener"],
        )

    def refuse(self, listener: str, why: str) -> None:
        """Count a connection that was one too many."""
        self._refused[listener, why].inc()

    def fail_handshake(self, listener: str, why: HandshakeFailure) -> None:
        """Count a handshake that failed."""
        self._failed[listener, why].inc()

    def reloaded(self, listener: str, good: bool) -> None:
        """Count a reading of the files of a listener's TLS."""
        self._read[listener, "ok" if good else "failed"].inc()
