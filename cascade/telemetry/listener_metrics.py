"""Metrics of the two listeners: their connections, and their TLS."""

from __future__ import annotations

from typing import Final

from cascade.telemetry.declared import EXPERIMENTAL, Declaring

__all__ = ["ListenerMetrics"]

_LISTENERS: Final = ("public", "admin")


class ListenerMetrics:
    """Count connections, those that were too many, and readings of files of TLS."""

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

    def reloaded(self, listener: str, good: bool) -> None:
        """Count a reading of the files of a listener's TLS."""
        self._read[listener, "ok" if good else "failed"].inc()
