"""Build the service that the listeners share: the release, its stages, and all that stands around them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import time
import uuid
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Final

from cascade.errors import ConfigError
from cascade.guard.under_way import UnderWay
from cascade.policy.levels import level_named
from cascade.policy.release import StageSpec
from cascade.rollout.activation import ActivationStep
from cascade.rollout.bundle import Bundle
from cascade.server.active import ActiveRelease, Shared
from cascade.server.caching import open_cache
from cascade.server.connections import ConnectionBounds, Connections
from cascade.server.gate import open_access, open_admission
from cascade.server.guards import guard_events
from cascade.server.handshakes import Handshakes
from cascade.server.queue_waits import QueueWaits
from cascade.server.reading import read_bundle, read_release
from cascade.server.recording import Records, open_records
from cascade.server.secret_file import secret_of
from cascade.server.service import Service
from cascade.server.settings import Settings
from cascade.server.stage_pool import StagePool
from cascade.server.start_choices import StartChoices
from cascade.server.tenant_quotas import TenantQuotas
from cascade.server.tls import LISTENERS, Listener, ListenerTls, open_tls
from cascade.server.tracing import Tracing, open_tracing
from cascade.server.traffic import Traffic
from cascade.stages.base import Stage
from cascade.stages.build import build_stage
from cascade.stages.cores import usable_cores
from cascade.stages.engine.workers import Workers, worker_pool
from cascade.telemetry.faults import Faults
from cascade.telemetry.listener_metrics import ListenerMetrics
from cascade.telemetry.metrics import Metrics
from cascade.types import StageName

__all__ = ["built_service", "open_service", "query_hash", "read_bundle", "read_release", "start_stages"]

_ADMIN_CONNECTIONS: Final = 256


@contextlib.asynccontextmanager
async def open_service(settings: Settings, environment: Mapping[str, str] = os.environ) -> AsyncIterator[Service]:
    """Load the release, start its stages, and give everything back at the end. Raises ConfigError."""
    async with built_service(settings, environment) as service:
        await start_stages(service)
        yield service


@contextlib.asynccontextmanager
async def built_service(
    settings: Settings,
    environment: Mapping[str, str] = os.environ,
    *,
    bundle: Bundle | None = None,
    choices: StartChoices | None = None,
) -> AsyncIterator[Service]:
    """Load the release and build its stages without starting them. ``bundle`` is one that is loaded already.

    With ``choices`` the first of them is served of which the stages can be built. Raises ConfigError.
    """
    if choices is None:
        bundle = bundle or read_bundle(settings, environment)
        choices = StartChoices.of(bundle)
    if choices.is_named:  # before anything is built that would have to be given back
        level_named(choices.bundle.loaded.release, settings.level)
    hash_query = query_hash(settings.query_hash_key_file)
    metrics = Metrics()
    faults = Faults(metrics, time.monotonic)
    access = open_access(settings.keys_file, "public", "keys_file", metrics.keys)
    admin_access = open_access(settings.admin_keys_file, "admin", "admin_keys_file", metrics.keys)
    tls = _open_tls(settings, metrics.listeners)
    waits = QueueWaits(metrics.admission.settled)
    admission = open_admission(settings, {}, time.monotonic, waits.settled)
    cache = open_cache(settings, environment, metrics.cache, time.monotonic)
    threads = worker_pool(settings.embedded_threads)
    pool = _stage_pool(threads, environment, metrics, faults)
    async with contextlib.AsyncExitStack() as ends:
        ends.callback(threads.close)
        written: list[Records | Tracing] = []
        ends.push_async_callback(_close_together, written)
        tracing = open_tracing(settings, metrics.traces, faults)
        if tracing is not None:
            written.append(tracing)
        records = open_records(settings, hash_text=hash_query, metrics=metrics, faults=faults)
        if records is not None:
            written.append(records)
        if cache is not None:
            await cache.store.start()
            ends.push_async_callback(cache.store.aclose)
        shared = Shared(
            pool=pool,
            metrics=metrics,
            faults=faults,
            clock=time.monotonic,
            under_way=UnderWay(),
            hash_query=hash_query,
            new_id=lambda: uuid.uuid4().hex,
            queue_wait_ms=lambda: admission.oldest_wait_s() * 1000,
            jitter=lambda: secrets.SystemRandom().uniform(0.8, 1.2),
            records=records,
            observe_in_flight=settings.observe_in_flight,
            leftover_s=settings.leftover_seconds,
            cache=cache,
        )
        ends.push_async_callback(_close_all, shared)
        traffic = Traffic(
            await choices.opened(lambda bundle: ActiveRelease(bundle, shared)),
            metrics=metrics,
            faults=faults,
            waits=waits,
            quotas=TenantQuotas(admission, metrics.admission, time.monotonic),
            pinned=settings.level,
        )
        yield Service(
            traffic=traffic,
            open_release=lambda bundle: ActiveRelease(bundle, shared),
            pool=pool,
            metrics=metrics,
            faults=faults,
            clock=time.monotonic,
            admission=admission,
            under_way=shared.under_way,
            access=access,
            admin_access=admin_access,
            tracer=None if tracing is None else tracing.tracer,
            tls=tls,
            connections=_connections(settings, metrics.listeners),
            max_requests=settings.max_requests,
            max_body_bytes=settings.max_body_bytes,
            body_seconds=settings.body_seconds,
            rerank_dialect=settings.rerank_dialect,
            records=records is not None,
            embedded_threads=settings.embedded_threads or usable_cores(),
            cache=cache,
            choices=choices,
        )


def _open_tls(settings: Settings, metrics: ListenerMetrics) -> dict[Listener, ListenerTls]:
    opened = {
        listener: open_tls(
            settings,
            listener,
            partial(metrics.reloaded, listener),
            Handshakes(listener, partial(metrics.fail_handshake, listener), time.monotonic),
        )
        for listener in LISTENERS
    }
    found = {listener: tls for listener, tls in opened.items() if tls is not None}
    for tls in found.values():
        tls.tell()
    return found


def _connections(settings: Settings, metrics: ListenerMetrics) -> dict[Listener, Connections]:
    bounds: dict[Listener, ConnectionBounds] = {
        "public": ConnectionBounds(settings.max_connections, settings.max_client_connections),
        "admin": ConnectionBounds(_ADMIN_CONNECTIONS),
    }
    return {of: Connections(bound, partial(metrics.refuse, of)) for of, bound in bounds.items()}


def _stage_pool(threads: Workers, environment: Mapping[str, str], metrics: Metrics, faults: Faults) -> StagePool:
    events_of = guard_events(metrics.guards)

    def build(name: StageName, spec: StageSpec, budget_ms: float) -> Stage:
        return build_stage(
            name,
            spec,
            budget_ms=budget_ms,
            clock=time.monotonic,
            pool=threads,
            environment=environment,
            count_fault=faults,
            events=events_of(name),
            work=metrics.work.events(name),
        )

    return StagePool(build)


async def _close_together(written: Sequence[Records | Tracing]) -> None:
    """Have what waits to be written or sent leave, at the same time: each has some seconds for it."""
    await asyncio.gather(*(each.aclose() for each in written))


async def _close_all(shared: Shared) -> None:
    """Close what is open of any release: the listeners are closed, so nothing is under way any more."""
    await asyncio.gather(*(release.aclose() for release in tuple(shared.opened)), return_exceptions=True)


async def start_stages(service: Service) -> None:
    """Start every stage, and settle whether the calibration decides; where they do not start, those of the next choice.

    Raises ConfigError where there is none left.
    """
    while not service.started:
        try:
            await service.traffic.stable.start()
        except Exception as error:  # noqa: BLE001 - whatever is wrong with one release, another may serve
            if not isinstance(error, ConfigError):
                service.faults(error)
            await service.choices.pass_over(ActivationStep.START, error)
            before = service.traffic.activate(await service.choices.opened(service.open_release))
            await before.aclose()
        else:
            service.started = True
    service.choices.tell()


def query_hash(key_file: Path | None) -> Callable[[str], str]:
    """Return a keyed hash of queries: equal queries can be told in the log, no query can be guessed from it.

    Raises ConfigError for a key that cannot be used.
    """
    key = secret_of(key_file, "query_hash_key_file")
    return lambda query: blake2b(query.encode("utf-8", "replace"), key=key, digest_size=8).hexdigest()
