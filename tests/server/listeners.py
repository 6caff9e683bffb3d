"""The public listener on a real socket, as the lifecycle serves it, and clients that are no clients."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from cascade.server.app import public_app
from cascade.server.connections import ConnectionBounds, Connections
from cascade.server.listening import server
from cascade.server.tls import ListenerTls
from tests.server.sidecar import Sidecar, sidecar

__all__ = ["Public", "ended", "public_listener", "until"]

_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class Public:
    """Where it listens, what counts its connections, and the sidecar behind it."""

    port: int
    connections: Connections
    refused: list[str]
    served: Sidecar

    def connect(self) -> socket.socket:
        """Return a connection."""
        return socket.create_connection(("127.0.0.1", self.port), _SECONDS)

    def over_tls(self, context: ssl.SSLContext) -> ssl.SSLSocket:
        """Return a connection that has shaken hands."""
        return context.wrap_socket(self.connect(), server_hostname="127.0.0.1")


@contextmanager
def public_listener(
    bounds: ConnectionBounds | None = None,
    tls: ListenerTls | None = None,
    loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop,
    **settings: Any,
) -> Iterator[Public]:
    """Serve the public application in a thread of its own, on a ``loop``. ``settings`` are those of `sidecar`."""

    def run() -> None:
        with asyncio.Runner(loop_factory=loop) as looping:
            looping.run(runner.serve([bound]))

    served = sidecar(clock=time.monotonic, **settings)
    refused: list[str] = []
    connections = Connections(bounds, refused.append)
    context = None if tls is None else tls.context
    runner = server(public_app(served.service), 1, connections=connections, context=context)
    bound = socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield Public(bound.getsockname()[1], connections, refused, served)
    finally:
        runner.should_exit = True
        thread.join()
        bound.close()


def ended(connection: socket.socket, seconds: float = _SECONDS) -> bytes:
    """Return all that comes until the other end closes or resets; raises TimeoutError where it does neither."""
    connection.settimeout(seconds)
    read = b""
    with contextlib.suppress(ConnectionError, ssl.SSLError):
        while part := connection.recv(65_536):
            read += part
    return read


def until(holds: Any) -> None:
    """Wait until something holds, which takes a moment on another thread."""
    end = time.monotonic() + _SECONDS
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.01)
