"""Look at what servers say of themselves, and stop using a calibration that was fitted for others."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

from cascade.rollout.identity import first_said, not_as_declared
from cascade.server.calibration_use import CalibrationState
from cascade.server.service import Service
from cascade.stages.base import Stage
from cascade.telemetry.logs import note
from cascade.types import StageName

__all__ = ["settle", "watch_stages"]

_UNANSWERED_SECONDS: Final = 2.0
"""A server that did not answer is looked at again soon: it may come back as another."""
_APART_SECONDS: Final = 1.0
"""A server that goes and comes again and again is looked at once in this time."""


async def watch_stages(service: Service, seconds: float) -> None:
    """Look at every stage again and again, ``seconds`` apart and when a server returns, and settle what decides."""
    async with asyncio.TaskGroup() as group:
        for name in service.pipeline.every_stage:
            group.create_task(_watch(service, name, seconds))


async def _watch(service: Service, name: StageName, seconds: float) -> None:
    stage = service.pipeline.every_stage[name]
    answered = stage.observed is not None
    while True:
        wait_s = seconds if answered else min(seconds, _UNANSWERED_SECONDS)
        returned = await _returns_within(stage, wait_s)
        try:
            answered = await stage.look_again()
            settle(service)
        except Exception as error:  # noqa: BLE001 - the boundary of a background task: it goes on looking
            service.faults(error)
            answered = False
        if returned:
            await asyncio.sleep(_APART_SECONDS)


async def _returns_within(stage: Stage, seconds: float) -> bool:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await stage.returned()
            return True
    return False


def settle(service: Service) -> None:
    """Let the calibration decide from now on, or the safe mode where a server is not as declared.

    Requests under way end as they began. What a stage has not been told yet leaves what was known of it.
    """
    use, pipeline = service.calibration, service.pipeline
    if use.digest is None:
        return
    specs = {StageName.SMALL: pipeline.normal.stages.small, StageName.LARGE: pipeline.normal.stages.large}
    for name, stage in pipeline.every_stage.items():
        spec, observed = specs.get(name), stage.observed
        if spec is not None and observed is not None:
            use.first[name] = first_said(use.first.get(name), observed)
            use.unlike[name] = tuple(not_as_declared(spec, use.first[name], observed))
    if use.calibrated is not None and use.safe is not None:
        service.decide_by(use.safe if use.reasons else use.calibrated)
    service.metrics.safe_mode.set(use.state is CalibrationState.SAFE_MODE)
    _tell(service)


def _tell(service: Service) -> None:
    use, reasons = service.calibration, service.calibration.reasons
    if reasons and reasons != use.told:
        note("warning", "safe mode", calibration=use.digest, why=reasons)
    elif use.told and not reasons:
        note("info", "safe mode ended", calibration=use.digest)
    use.told = reasons
