"""A recorder that keeps what it is told, and a pipeline that tells it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field

from cascade.calibration.calibrated import Calibration
from cascade.guard.beside import Beside
from cascade.pipeline import Pipeline
from cascade.policy.release import Release
from cascade.stages.base import Stage
from cascade.telemetry.records import Decided
from cascade.types import StageName

__all__ = ["Kept", "recorded_pipeline"]


@dataclass(slots=True)
class Kept:
    """Keep every decided request; ``fails`` is raised in its place."""

    sampled: bool = True
    fails: Exception | None = None
    decided: list[Decided] = field(default_factory=list)

    def wants(self, query_hash: str) -> bool:
        """Say what the test says."""
        return self.sampled

    def record(self, decided: Decided) -> None:
        """Keep one."""
        if self.fails is not None:
            raise self.fails
        self.decided.append(decided)


def recorded_pipeline(
    release: Release,
    stages: Mapping[StageName, Stage],
    kept: Kept,
    *,
    faults: list[BaseException],
    beside: Beside | None = None,
    calibration: Calibration | None = None,
) -> Pipeline:
    """Return a pipeline on the running loop's clock; at most 100 small rounds are under way beside answers."""
    return Pipeline(
        release,
        stages,
        calibration=calibration,
        clock=asyncio.get_running_loop().time,
        new_id=lambda: "id-1",
        hash_query=lambda query: "ab12" * 4,
        count_fault=faults.append,
        recorder=kept,
        beside=beside or Beside(100),
    )
