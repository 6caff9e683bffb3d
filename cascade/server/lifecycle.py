"""Start, run and stop the sidecar."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import signal
import socket
import sys
from collections.abc import Callable, Coroutine, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import uvicorn
from starlette.types import ASGIApp

from cascade.errors import ConfigError
from cascade.server.admin import admin_app
from cascade.server.announcing import addresses, announce, tell_open
from cascade.server.app import public_app
from cascade.server.building import built_service, start_stages
from cascade.server.listening import listen, server
from cascade.server.probing import probe_stages
from cascade.server.rollout_start import begun
from cascade.server.rollout_wiring import open_desk
from cascade.server.service import Service
from cascade.server.settings import Settings
from cascade.server.stopping import ADMIN_STOP_SECONDS, end_public, stop_seconds
from cascade.server.tls import Listener
from cascade.server.watching import watch_stages
from cascade.telemetry.logs import configure_logging, note

__all__ = ["serve"]

Made = TypeVar("Made")


def serve(settings: Settings) -> None:
    """Serve until SIGTERM or SIGINT. Raises ConfigError where the sidecar cannot start."""
    with _log_stream(settings.log_file) as stream:
        configure_logging(settings.log_level, stream)
        with asyncio.Runner(loop_factory=_new_loop) as runner:
            runner.run(_serve(settings))


@contextlib.contextmanager
def _log_stream(path: Path | None) -> Iterator[BinaryIO]:
    if path is None:
        yield sys.stderr.buffer
        return
    try:
        stream = path.open("ab", buffering=0)
    except OSError as error:
        raise ConfigError(f"log_file: cannot be opened: {type(error).__name__}") from None
    with stream:
        yield stream


async def _serve(settings: Settings) -> None:
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    with (
        listen("port", settings.host, settings.port) as public_socket,
        listen("admin_port", settings.admin_host, settings.admin_port) as admin_socket,
    ):
        async with contextlib.AsyncExitStack() as ends:
            start = await _unless(stopping, ends.enter_async_context(begun(settings)))
            if start is None:
                note("info", "stopping", drain_seconds=0)
                return
            service = await ends.enter_async_context(built_service(settings, choices=start.choices))

            async def begin() -> None:
                await start_stages(service)
                await ends.enter_async_context(start.starts.settling(stopping))
                service.desk = await ends.enter_async_context(open_desk(service, settings, start))

            await _run(service, settings, begin, public_socket, admin_socket, stopping)


async def _unless(stopping: asyncio.Event, work: Coroutine[Any, Any, Made]) -> Made | None:
    """Return what comes of some work, None where the process is told to stop before that; nothing goes on then."""
    working = asyncio.create_task(work, name="begins")
    stop = asyncio.create_task(stopping.wait(), name="signal to stop")
    try:
        await asyncio.wait([working, stop], return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else None
    finally:
        for task in (working, stop):
            task.cancel()
        await asyncio.gather(working, stop, return_exceptions=True)


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:  # uvloop has no wheel for this platform
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


async def _run(
    service: Service,
    settings: Settings,
    begin: Callable[[], Coroutine[Any, Any, None]],
    public_socket: socket.socket,
    admin_socket: socket.socket,
    stopping: asyncio.Event,
) -> None:
    """Listen, begin, and serve until told to stop; while the stages start, requests are answered 503."""
    public = _server(service, "public", public_app(service), stop_seconds(settings.leftover_seconds))
    admin = _server(service, "admin", admin_app(service), ADMIN_STOP_SECONDS)
    listeners = [
        asyncio.create_task(public.serve([public_socket]), name="public listener"),
        asyncio.create_task(admin.serve([admin_socket]), name="admin listener"),
    ]
    starting = asyncio.create_task(begin(), name="start of the stages")
    stop = asyncio.create_task(stopping.wait(), name="signal to stop")
    background: list[asyncio.Task[Any]] = [starting, stop]
    for watched in (service.access, service.admin_access, *service.tls.values()):
        if watched is not None:
            watching = watched.watch(settings.keys_seconds)
            background.append(asyncio.create_task(watching, name="looks at keys and certificates"))
    note("info", "starting", **addresses(service, public_socket, admin_socket))
    try:
        await asyncio.wait([starting, stop, *listeners], return_when=asyncio.FIRST_COMPLETED)
        if starting.done() and not stop.done():
            starting.result()
            gc.collect()
            gc.freeze()  # looking through all that was loaded stops the loop for 40 ms, again and again under load
            looking = watch_stages(service, settings.fingerprint_seconds)
            background.append(asyncio.create_task(looking, name="looks at the stages"))
            if (
                service.desk is not None
            ):  # before readiness, which may hang on a server that another release does not need
                background.append(asyncio.create_task(service.desk.run(), name="rolls releases out"))
            await _probed(service, [stop, *listeners])
            if not stop.done():
                service.ready = True
                announce(service, public_socket, admin_socket)
                tell_open(settings)
            await asyncio.wait([stop, *listeners], return_when=asyncio.FIRST_COMPLETED)
            service.ready = False
        if stop.done():
            note("info", "stopping", drain_seconds=settings.drain_seconds)
            service.draining = True
            if service.desk is not None:  # now, since whoever told it may not wait for its end
                background.append(asyncio.create_task(service.desk.stops(), name="keeps that it is told to stop"))
        if stop.done() and service.started:
            await asyncio.sleep(settings.drain_seconds)
    finally:
        service.ready = False
        gc.unfreeze()
        for task in background:
            task.cancel()
        public.should_exit = True
        await end_public(service, listeners[0], settings.leftover_seconds)
        admin.should_exit = True
        await asyncio.gather(*background, return_exceptions=True)
        await asyncio.gather(*listeners)


def _server(service: Service, listener: Listener, app: ASGIApp, seconds: int) -> uvicorn.Server:
    tls = service.tls.get(listener)
    context = None if tls is None else tls.context
    return server(app, seconds, connections=service.connections[listener], context=context)


async def _probed(service: Service, ends: Sequence[asyncio.Task[Any]]) -> None:
    """Begin to probe as the release says, and where readiness hangs on it wait for every stage, or for an end."""
    stable = service.traffic.stable
    rule = stable.bundle.loaded.release.probe
    if rule == "off":
        return
    probing = stable.spawn(probe_stages(stable, service.clock), "probes of the stages")
    if rule == "enforce":
        note("info", "not ready before every stage scores known pairs right")
        await asyncio.wait([probing, *ends], return_when=asyncio.FIRST_COMPLETED)
