"""What the listeners share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from cascade.cache.score_cache import ScoreCache
from cascade.guard.admission import Admission
from cascade.guard.deadline import Clock
from cascade.guard.under_way import UnderWay
from cascade.rollout.bundle import Bundle
from cascade.rollout.desk import Desk
from cascade.server.access import Access
from cascade.server.active import ActiveRelease
from cascade.server.connections import Connections
from cascade.server.stage_pool import StagePool
from cascade.server.start_choices import StartChoices
from cascade.server.tls import LISTENERS, Listener, ListenerTls
from cascade.server.traffic import Traffic
from cascade.telemetry.faults import Faults
from cascade.telemetry.metrics import Metrics
from cascade.telemetry.tracer import Tracer

__all__ = ["RerankDialect", "Service"]

RerankDialect = Literal["vllm", "infinity"]
"""Who answers ``/rerank`` with ``documents``."""


@dataclass(slots=True)
class Service:
    """What the listeners share.

    ``traffic`` says which release decides a request, and ``open_release`` makes of a bundle one that can, not yet
    started; it raises ConfigError. ``pool`` has the stages of all releases. ``choices`` are what this start could serve.
    ``started`` is true from when every stage has started: until then no request is answered.
    ``ready`` is what readiness says: it is false also while stopping, when requests are still answered.
    ``draining`` is true from then on: connections are closed behind their answers. ``records`` tells whether
    decisions are recorded. ``access`` and ``admin_access`` are the keys of the two listeners, None for one that is
    open to all, and ``tls`` what each speaks TLS with, where it does. ``cache`` has kept scores, None where none are kept. ``embedded_threads`` is how many threads stages inside the process share. ``tracer`` begins the traces of requests, None where none are made. ``desk`` rolls releases out, where there is one. ``held`` counts requests from their head to their answer, at most ``max_requests``.
    """

    traffic: Traffic
    open_release: Callable[[Bundle], ActiveRelease]
    pool: StagePool
    metrics: Metrics
    faults: Faults
    clock: Clock
    admission: Admission
    under_way: UnderWay
    choices: StartChoices
    max_body_bytes: int
    body_seconds: float = 10.0
    rerank_dialect: RerankDialect = "vllm"
    started: bool = False
    ready: bool = False
    draining: bool = False
    held: int = 0
    max_requests: int = 4096
    access: Access | None = None
    admin_access: Access | None = None
    tls: Mapping[Listener, ListenerTls] = field(default_factory=dict)
    connections: Mapping[Listener, Connections] = field(
        default_factory=lambda: {each: Connections() for each in LISTENERS}
    )
    records: bool = False
    embedded_threads: int = 1
    cache: ScoreCache | None = None
    tracer: Tracer | None = None
    desk: Desk[ActiveRelease] | None = None
