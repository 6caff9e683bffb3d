"""What the listeners share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from cascade.guard.deadline import Clock
from cascade.pipeline import Pipeline
from cascade.server.calibration_use import CalibrationUse
from cascade.stages.probe import Probe
from cascade.telemetry.faults import Faults
from cascade.telemetry.metrics import Metrics
from cascade.types import StageName

__all__ = ["RerankDialect", "Service"]

RerankDialect = Literal["vllm", "infinity"]
"""Who answers ``/rerank`` with ``documents``."""


@dataclass(slots=True)
class Service:
    """What the listeners share.

    ``pipeline`` is the one that decides from now on; a request is decided by the one it began with.
    ``started`` is true from when every stage has started: until then no request is answered.
    ``ready`` is what readiness says: it is false also while stopping, when requests are still answered.
    ``records`` tells whether decisions are recorded.
    """

    pipeline: Pipeline
    metrics: Metrics
    faults: Faults
    clock: Clock
    digest: str
    policy_digest: str
    max_body_bytes: int
    body_seconds: float = 10.0
    rerank_dialect: RerankDialect = "vllm"
    started: bool = False
    ready: bool = False
    records: bool = False
    probes: dict[StageName, Probe] = field(default_factory=dict)
    calibration: CalibrationUse = field(default_factory=CalibrationUse)
