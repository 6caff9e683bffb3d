"""Have a release decide a request that nobody waits for."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from cascade.decision import Decision, DegradedReason, Ranking
from cascade.guard.deadline import Deadline
from cascade.pipeline import Pipeline
from cascade.rollout.shadow.aside_stage import AsideStages
from cascade.telemetry.records import Assignment
from cascade.types import Request

__all__ = ["decide_aside", "is_as_planned"]

_OF_THE_RELEASE: Final = frozenset({DegradedReason.CALIBRATION_MISMATCH})
"""That a calibration does not hold is the release's own doing, and so is the order it makes of that."""


async def decide_aside(
    pipeline: Pipeline,
    stages: AsideStages,
    request: Request,
    *,
    new_id: str,
    deadline: Deadline,
    assigned: Assignment | None = None,
) -> Ranking:
    """Return what the release of ``pipeline`` answers at normal within the deadline; the caller's own does not count.

    It is recorded as ``assigned``, and not at all without that.
    """
    beside = pipeline.aside(
        stages.of(pipeline.every_stage),
        within_ms=max(1.0, deadline.remaining_ms()),
        new_id=lambda: new_id,
        records=assigned is not None,
    )
    return await beside.rerank(replace(request, deadline_ms=None, fail_closed=False), assigned=assigned or Assignment())


def is_as_planned(decision: Decision) -> bool:
    """Tell whether an order is the release's doing, and not that of a stage that failed or of load."""
    return _OF_THE_RELEASE.issuperset(decision.degraded)
