"""Start, run and stop the sidecar."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import secrets
import signal
import socket
import sys
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any, BinaryIO

import uvicorn
from starlette.types import ASGIApp

from cascade.calibration.calibrated import Calibration
from cascade.errors import ConfigError
from cascade.pipeline import Pipeline
from cascade.policy.levels import level_named
from cascade.rollout.bundle import Bundle, load_bundle
from cascade.rollout.load import LoadedRelease, default_release_path, load_release
from cascade.server.admin import admin_app
from cascade.server.app import public_app
from cascade.server.calibration_use import calibration_use
from cascade.server.connections import BoundedHead
from cascade.server.probing import probe_stages
from cascade.server.recording import open_recording
from cascade.server.service import Service
from cascade.server.settings import Settings
from cascade.server.watching import settle, watch_stages
from cascade.stages.build import build_stages
from cascade.stages.onnx_model import worker_pool
from cascade.telemetry.faults import Faults
from cascade.telemetry.logs import configure_logging, note
from cascade.telemetry.metrics import Metrics

__all__ = ["open_service", "query_hash", "read_bundle", "read_release", "serve"]


def read_release(settings: Settings, environment: Mapping[str, str] = os.environ) -> LoadedRelease:
    """Load the release that settings name, else the packaged default. Raises ConfigError."""
    return load_release(settings.release or default_release_path(), environment)


def read_bundle(settings: Settings, environment: Mapping[str, str] = os.environ) -> Bundle:
    """Load the release that settings name, else the packaged default, with its calibration. Raises ConfigError."""
    return load_bundle(settings.release or default_release_path(), environment)


@contextlib.asynccontextmanager
async def open_service(settings: Settings, environment: Mapping[str, str] = os.environ) -> AsyncIterator[Service]:
    """Load the release, start its stages, and give everything back at the end. Raises ConfigError."""
    async with _built_service(settings, environment) as service:
        await _start_stages(service)
        yield service


@contextlib.asynccontextmanager
async def _built_service(settings: Settings, environment: Mapping[str, str] = os.environ) -> AsyncIterator[Service]:
    """Load the release and build its stages without starting them."""
    bundle = read_bundle(settings, environment)
    loaded = bundle.loaded
    level_named(loaded.release, settings.level)  # before anything is built that would have to be given back
    hash_query = query_hash(settings.query_hash_key_file)
    metrics = Metrics()
    metrics.activate(loaded.release.release, loaded.digest)
    faults = Faults(metrics, time.monotonic)
    pool = worker_pool(settings.embedded_threads)
    stages = build_stages(loaded.release, clock=time.monotonic, pool=pool, environment=environment, count_fault=faults)
    recording = open_recording(settings, loaded, stages, hash_text=hash_query, metrics=metrics, faults=faults)

    def make(calibration: Calibration | None) -> Pipeline:
        return Pipeline(
            loaded.release,
            stages,
            level=settings.level,
            calibration=calibration,
            clock=time.monotonic,
            new_id=lambda: uuid.uuid4().hex,
            hash_query=hash_query,
            count_fault=faults,
            recorder=None if recording is None else recording.recorder,
            beside=None if recording is None else recording.beside,
        )

    pipeline, use = calibration_use(bundle, make)
    try:
        yield Service(
            pipeline=pipeline,
            metrics=metrics,
            faults=faults,
            clock=time.monotonic,
            digest=loaded.digest,
            policy_digest=loaded.policy_digest,
            max_body_bytes=settings.max_body_bytes,
            body_seconds=settings.body_seconds,
            rerank_dialect=settings.rerank_dialect,
            records=recording is not None,
            calibration=use,
        )
    finally:
        if recording is not None:
            await recording.aclose()
        await asyncio.gather(*(stage.aclose() for stage in stages.values()), return_exceptions=True)
        pool.shutdown(wait=True, cancel_futures=True)


async def _start_stages(service: Service) -> None:
    """Start every stage, and settle whether the calibration decides. Raises ConfigError."""
    await asyncio.gather(*(stage.start() for stage in service.pipeline.stages.values()))
    settle(service)
    service.started = True


def query_hash(key_file: Path | None) -> Callable[[str], str]:
    """Return a keyed hash of queries: equal queries can be told in the log, no query can be guessed from it.

    Raises ConfigError for a key that cannot be used.
    """
    if key_file is None:
        key = secrets.token_bytes(32)
    else:
        try:
            key = key_file.read_bytes().strip()
        except OSError as error:
            raise ConfigError(f"query_hash_key_file: cannot be read: {type(error).__name__}") from None
        if not 16 <= len(key) <= 64:
            raise ConfigError("query_hash_key_file: a key has 16 to 64 bytes")
    return lambda query: blake2b(query.encode("utf-8", "replace"), key=key, digest_size=8).hexdigest()


def serve(settings: Settings) -> None:
    """Serve until SIGTERM or SIGINT. Raises ConfigError where the sidecar cannot start."""
    with _log_stream(settings.log_file) as stream:
        configure_logging(settings.log_level, stream)
        with asyncio.Runner(loop_factory=_new_loop) as runner:
            runner.run(_serve(settings))


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:  # uvloop has no wheel for this platform
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


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
        _listen("port", settings.host, settings.port) as public_socket,
        _listen("admin_port", settings.admin_host, settings.admin_port) as admin_socket,
    ):
        async with _built_service(settings) as service:
            await _run(service, settings, public_socket, admin_socket, stopping)


async def _run(
    service: Service,
    settings: Settings,
    public_socket: socket.socket,
    admin_socket: socket.socket,
    stopping: asyncio.Event,
) -> None:
    """Listen, start the stages, and serve until told to stop; while they start, requests are answered 503."""
    public, admin = _server(public_app(service)), _server(admin_app(service))
    listeners = [
        asyncio.create_task(public.serve([public_socket]), name="public listener"),
        asyncio.create_task(admin.serve([admin_socket]), name="admin listener"),
    ]
    starting = asyncio.create_task(_start_stages(service), name="start of the stages")
    stop = asyncio.create_task(stopping.wait(), name="signal to stop")
    background: list[asyncio.Task[Any]] = [starting, stop]
    note("info", "starting", public=_address(public_socket), admin=_address(admin_socket))
    try:
        await asyncio.wait([starting, stop, *listeners], return_when=asyncio.FIRST_COMPLETED)
        if starting.done() and not stop.done():
            starting.result()
            gc.collect()
            gc.freeze()  # looking through all that was loaded stops the loop for 40 ms, again and again under load
            looking = watch_stages(service, settings.fingerprint_seconds)
            background.append(asyncio.create_task(looking, name="looks at the stages"))
            await _probed(service, background, [stop, *listeners])
            if not stop.done():
                service.ready = True
                _announce(service, public_socket, admin_socket)
            await asyncio.wait([stop, *listeners], return_when=asyncio.FIRST_COMPLETED)
            service.ready = False
        if stop.done():
            note("info", "stopping", drain_seconds=settings.drain_seconds)
        if stop.done() and service.started:
            await asyncio.sleep(settings.drain_seconds)
    finally:
        service.ready = False
        gc.unfreeze()
        for task in background:
            task.cancel()
        public.should_exit = True
        await asyncio.wait([listeners[0]])
        admin.should_exit = True
        await asyncio.gather(*background, return_exceptions=True)
        await asyncio.gather(*listeners)


async def _probed(service: Service, background: list[asyncio.Task[Any]], ends: Sequence[asyncio.Task[Any]]) -> None:
    """Begin to probe as the release says, and where readiness hangs on it wait for every stage, or for an end."""
    rule = service.pipeline.release.probe
    if rule == "off":
        return
    probing = asyncio.create_task(probe_stages(service), name="probes of the stages")
    background.append(probing)
    if rule == "enforce":
        note("info", "not ready before every stage scores known pairs right")
        await asyncio.wait([probing, *ends], return_when=asyncio.FIRST_COMPLETED)


def _announce(service: Service, public: socket.socket, admin: socket.socket) -> None:
    note(
        "info",
        "serving",
        release=service.pipeline.release.release,
        digest=service.digest,
        load_level=service.pipeline.level.name,
        public=_address(public),
        admin=_address(admin),
    )
    if service.pipeline.level.is_above_normal:
        note("warning", "load level above normal", load_level=service.pipeline.level.name)
    if service.pipeline.release.mode == "observe" and not service.records:
        note("warning", "mode observe keeps nothing: record_file is not set")
    for name, stage in service.pipeline.stages.items():
        if stage.unusable is not None:
            note("error", "stage unusable", stage=name, code=stage.unusable)
        elif stage.observed is None:
            note("warning", "stage not reached yet", stage=name)


def _address(bound: socket.socket) -> str:
    host, port = bound.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _listen(setting: str, host: str, port: int) -> socket.socket:
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


def _server(app: ASGIApp) -> uvicorn.Server:
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
            timeout_graceful_shutdown=30,
        )
    )
