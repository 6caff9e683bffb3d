"""The two listeners: their sockets, and the servers that leave signals to the lifecycle."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Iterator

import uvicorn
from starlette.types import ASGIApp
from uvicorn.config import Config

from cascade.errors import ConfigError
from cascade.server.connections import BoundedConnection, Connections

__all__ = ["address", "listen", "server"]


def address(bound: socket.socket, *, tls: bool = False) -> str:
    """Return where a socket listens, as an address of the web."""
    host, port = bound.getsockname()[:2]
    scheme = "https" if tls else "http"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def listen(setting: str, host: str, port: int) -> socket.socket:
    """Return a listening socket. Raises ConfigError naming the setting of its port."""
    if not (host.isascii() and host.isprintable()):
        raise ConfigError(f"{setting}: cannot listen on {host!r}:{port}: not a host name")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        raise ConfigError(f"{setting}: cannot listen on {host}:{port}: {error.strerror}") from None


class _Server(uvicorn.Server):
    """Leave signals to the lifecycle: readiness fails before connections are refused."""

    def __init__(self, config: Config, connections: Connections, context: ssl.SSLContext | None) -> None:
        super().__init__(config)
        self._connections = connections
        self._context = context

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen as uvicorn does on sockets that it is given, with bounds on how connections of TLS begin and end: it sets none."""
        loop = asyncio.get_running_loop()
        bounds, plain = self._connections.bounds, self._context is None
        self.servers = [
            await loop.create_server(
                self._protocol,
                sock=each,
                ssl=self._context,
                backlog=self.config.backlog,
                ssl_handshake_timeout=None if plain else bounds.handshake_seconds,
                ssl_shutdown_timeout=None if plain else bounds.goodbye_seconds,
            )
            for each in sockets or []
        ]
        self.started = True

    def _protocol(self) -> asyncio.Protocol:
        return BoundedConnection(self.config, self.server_state, {}, connections=self._connections)


def server(
    app: ASGIApp,
    stop_seconds: int,
    *,
    connections: Connections | None = None,
    context: ssl.SSLContext | None = None,
) -> uvicorn.Server:
    """Return what serves an application, over TLS where there is a ``context``.

    Told to stop, it cuts off what is under way after ``stop_seconds``.
    """
    config = Config(
        app,
        http=BoundedConnection,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=60,
        timeout_graceful_shutdown=stop_seconds,
    )
    return _Server(config, Connections() if connections is None else connections, context)
