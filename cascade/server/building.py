"""Build the service that the listeners share: the release, its stages, and all that stands around them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import time
import uuid
from collections.abc import AsyncIterator, Callable, Mapping
from hashlib import blake2b
from pathlib import Path

from cascade.calibration.calibrated import Calibration
from cascade.errors import ConfigError
from cascade.guard.pressure import Pressure
from cascade.guard.under_way import UnderWay
from cascade.pipeline import Pipeline
from cascade.policy.levels import level_named, level_names
from cascade.rollout.bundle import Bundle, evidence_of, load_bundle
from cascade.rollout.certified import certificate_fault
from cascade.rollout.load import LoadedRelease, default_release_path, load_release
from cascade.rollout.measured import MeasuredLevels, measured_levels
from cascade.server.calibration_use import calibration_use
from cascade.server.gate import open_access, open_admission
from cascade.server.guards import guard_events
from cascade.server.recording import open_recording
from cascade.server.service import Service
from cascade.server.settings import Settings
from cascade.server.stepping import Stepping, told_to_pressure, watch_rooms
from cascade.server.watching import settle
from cascade.stages.build import build_stages
from cascade.stages.onnx_model import worker_pool
from cascade.telemetry.faults import Faults
from cascade.telemetry.metrics import Metrics

__all__ = ["built_service", "open_service", "query_hash", "read_bundle", "read_release", "start_stages"]


def read_release(settings: Settings, environment: Mapping[str, str] = os.environ) -> LoadedRelease:
    """Load the release that settings name, else the packaged default. Raises ConfigError."""
    return load_release(settings.release or default_release_path(), environment)


def read_bundle(settings: Settings, environment: Mapping[str, str] = os.environ) -> Bundle:
    """Load the release that settings name, else the packaged default, with its calibration. Raises ConfigError."""
    return load_bundle(settings.release or default_release_path(), environment)


@contextlib.asynccontextmanager
async def open_service(settings: Settings, environment: Mapping[str, str] = os.environ) -> AsyncIterator[Service]:
    """Load the release, start its stages, and give everything back at the end. Raises ConfigError."""
    async with built_service(settings, environment) as service:
        await start_stages(service)
        yield service


@contextlib.asynccontextmanager
async def built_service(settings: Settings, environment: Mapping[str, str] = os.environ) -> AsyncIterator[Service]:
    """Load the release and build its stages without starting them."""
    bundle = read_bundle(settings, environment)
    loaded = bundle.loaded
    level_named(loaded.release, settings.level)  # before anything is built that would have to be given back
    hash_query = query_hash(settings.query_hash_key_file)
    metrics = Metrics()
    metrics.activate(loaded.release.release, loaded.digest)
    faults = Faults(metrics, time.monotonic)
    access = open_access(settings.keys_file, "public", "keys_file", metrics.keys)
    admin_access = open_access(settings.admin_keys_file, "admin", "admin_keys_file", metrics.keys)
    tenants = loaded.release.limits.tenants
    metrics.admission.name_tenants(tenants)
    pressure = Pressure(time.monotonic, least_deadline_ms=loaded.release.budgets.total_ms)
    settled = told_to_pressure(metrics.admission.settled, pressure)
    admission = open_admission(settings, tenants, time.monotonic, settled)
    pressure.watch_queue(lambda: admission.oldest_wait_s() * 1000)
    under_way = UnderWay()
    pool = worker_pool(settings.embedded_threads)
    stages = build_stages(
        loaded.release,
        clock=time.monotonic,
        pool=pool,
        environment=environment,
        count_fault=faults,
        events_of=guard_events(metrics.guards),
    )
    recording = open_recording(settings, loaded, stages, hash_text=hash_query, metrics=metrics, faults=faults)

    watch_rooms(pressure, stages)
    beside = None if recording is None else recording.beside

    def make(calibration: Calibration | None, level: str) -> Pipeline:
        return Pipeline(
            loaded.release,
            stages,
            level=level,
            calibration=calibration,
            clock=time.monotonic,
            new_id=lambda: uuid.uuid4().hex,
            hash_query=hash_query,
            count_fault=faults,
            recorder=None if recording is None else recording.recorder,
            beside=beside,
            under_way=under_way,
            pressure=pressure,
        )

    names = level_names(loaded.release)
    ladder, use = calibration_use(bundle, lambda calibration: tuple(make(calibration, name) for name in names))
    measured = measured_levels(loaded, bundle.source)
    evidence_faults = _evidence_faults(bundle, measured)
    for kind in ("certificate", "report"):
        metrics.evidence.labels(kind).set(kind in evidence_faults)
    stepping = Stepping(
        loaded.release,
        pressure,
        time.monotonic,
        metrics=metrics.levels,
        jitter=secrets.SystemRandom().uniform(0.8, 1.2),
        pinned=settings.level,
        beside=beside,
        soon=lambda call: asyncio.get_running_loop().call_soon(faults.counting(call)),
    )
    try:
        service = Service(
            pipeline=ladder[stepping.level],
            metrics=metrics,
            faults=faults,
            clock=time.monotonic,
            digest=loaded.digest,
            policy_digest=loaded.policy_digest,
            admission=admission,
            under_way=under_way,
            access=access,
            admin_access=admin_access,
            max_requests=settings.max_requests,
            max_body_bytes=settings.max_body_bytes,
            body_seconds=settings.body_seconds,
            rerank_dialect=settings.rerank_dialect,
            records=recording is not None,
            calibration=use,
            ladder=ladder,
            stepping=stepping,
            measured=measured,
            evidence_faults=evidence_faults,
        )
        stepping.changed = service.step
        yield service
    finally:
        if recording is not None:
            await recording.aclose()
        await asyncio.gather(*(stage.aclose() for stage in stages.values()), return_exceptions=True)
        pool.shutdown(wait=True, cancel_futures=True)


def _evidence_faults(bundle: Bundle, measured: MeasuredLevels) -> dict[str, str]:
    """Return why what a release names as evidence does not hold for it, by kind; nothing of what it does not name."""
    found = {"certificate": certificate_fault(bundle.loaded, bundle.source)}
    if "report" in evidence_of(bundle.loaded):
        found["report"] = measured.fault
    return {kind: why for kind, why in found.items() if why is not None}


async def start_stages(service: Service) -> None:
    """Start every stage, and settle whether the calibration decides. Raises ConfigError."""
    await asyncio.gather(*(stage.start() for stage in service.pipeline.every_stage.values()))
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
