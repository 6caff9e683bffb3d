"""What the listeners share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from cascade.guard.admission import Admission
from cascade.guard.deadline import Clock
from cascade.guard.under_way import UnderWay
from cascade.pipeline import Pipeline
from cascade.rollout.measured import MeasuredLevels
from cascade.server.access import Access
from cascade.server.calibration_use import CalibrationUse
from cascade.server.stepping import Stepping
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

    ``pipeline`` is the one that decides from now on; a request is decided by the one it began with. It is the one of
    ``ladder``, the pipelines by load level, that ``stepping`` says, where there is one. ``measured`` is what is known beforehand of the levels, and
    ``evidence_faults`` why a certificate or report that the release names does not hold for it, by kind.
    ``started`` is true from when every stage has started: until then no request is answered.
    ``ready`` is what readiness says: it is false also while stopping, when requests are still answered.
    ``draining`` is true from then on: connections are closed behind their answers. ``records`` tells whether
    decisions are recorded. ``access`` and ``admin_access`` are the keys of the two listeners, None for one that is
    open to all. ``held`` counts requests from their head to their answer, at most ``max_requests``.
    """

    pipeline: Pipeline
    metrics: Metrics
    faults: Faults
    clock: Clock
    digest: str
    policy_digest: str
    admission: Admission
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
    under_way: UnderWay = field(default_factory=UnderWay)
    ladder: tuple[Pipeline, ...] = ()
    stepping: Stepping | None = None
    measured: MeasuredLevels = field(default_factory=MeasuredLevels)
    evidence_faults: Mapping[str, str] = field(default_factory=dict)
    records: bool = False
    probes: dict[StageName, Probe] = field(default_factory=dict)
    calibration: CalibrationUse = field(default_factory=CalibrationUse)

    def deciding(self) -> Pipeline:
        """Return the pipeline that decides one request."""
        if self.stepping is None or not self.stepping.level:
            return self.pipeline
        return self.ladder[self.stepping.choose()]

    def decide_by(self, ladder: tuple[Pipeline, ...]) -> None:
        """Let these pipelines decide, the one of the load level of the moment first."""
        self.ladder = ladder
        self.step(self.stepping.level if self.stepping is not None else 0)

    def step(self, level: int) -> None:
        """Let the pipeline of a level decide."""
        self.pipeline = self.ladder[level]
