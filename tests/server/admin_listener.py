"""The admin listener on a real socket, over a desk that a test holds."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, cast

import uvicorn

from cascade.server.admin import admin_app
from cascade.server.recent_decisions import RecentDecisions
from cascade.server.service import Service
from tests.server.rollout_desk import FakeDesk
from tests.server.sidecar import sidecar

__all__ = ["Listener", "admin_listener"]


@dataclass(frozen=True, slots=True)
class Listener:
    """Where it listens, the desk behind it, and the service that both belong to."""

    url: str
    desk: FakeDesk
    service: Service

    def afresh(self, desk: FakeDesk | None = None) -> Listener:
        """Return it with another desk behind it, ready, and as if nothing had been decided."""
        desk = desk or FakeDesk()
        self.service.desk, self.service.started = cast("Any", desk), True
        self.service.traffic.recent = RecentDecisions()
        return replace(self, desk=desk)


@contextmanager
def admin_listener(desk: FakeDesk | None = None, port: int = 0, **settings: Any) -> Iterator[Listener]:
    """Serve the admin application in a thread of its own. ``settings`` are those of `sidecar`."""
    desk = desk or FakeDesk()
    service = sidecar(clock=time.monotonic, desk=desk, **settings).service
    config = uvicorn.Config(admin_app(service), ws="none", lifespan="off", log_config=None, timeout_graceful_shutdown=1)
    runner = uvicorn.Server(config)
    bound = socket.create_server(("127.0.0.1", port))
    thread = threading.Thread(target=asyncio.run, args=(runner.serve([bound]),))
    thread.start()
    try:
        yield Listener(f"http://127.0.0.1:{bound.getsockname()[1]}", desk, service)
    finally:
        runner.should_exit = True
        thread.join()
        bound.close()
