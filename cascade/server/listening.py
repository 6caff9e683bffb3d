"""The two listeners: their sockets, and the servers that leave signals to the lifecycle."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator

import uvicorn
from starlette.types import ASGIApp

from cascade.errors import ConfigError
from cascade.server.connections import BoundedHead

__all__ = ["address", "listen", "server"]


def address(bound: socket.socket) -> str:
    """Return where a socket listens, as an address of the web."""
    host, port = bound.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


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

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def server(app: ASGIApp, stop_seconds: int) -> uvicorn.Server:
    """Return what serves an application; told to stop, it cuts off what is under way after ``stop_seconds``."""
    return _Server(
        uvicorn.Config(
            app,
            http=BoundedHead,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=60,
            timeout_graceful_shutdown=stop_seconds,
        )
    )
