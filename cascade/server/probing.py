"""Probe the stages once they are there, and tell what is odd. No stage is shut out for it.

Where the release's ``probe`` is ``enforce``, readiness waits for it.
"""

from __future__ import annotations

import asyncio
from typing import Final

from cascade.guard.deadline import Deadline
from cascade.server.service import Service
from cascade.stages.doctor import differences
from cascade.stages.probe import Verdict, probe
from cascade.telemetry.logs import note
from cascade.types import StageName

__all__ = ["probe_stages"]

_PROBE_MS: Final = 5000.0
_LONGEST_WAIT_SECONDS: Final = 60.0


async def probe_stages(service: Service) -> None:
    """Probe every stage of a service until it answers, or where probes are enforced until it answers right.

    Findings are in the log and in ``service.probes``.
    """
    async with asyncio.TaskGroup() as group:
        for name in service.pipeline.every_stage:
            group.create_task(_probe(service, name))


async def _probe(service: Service, name: StageName) -> None:
    enforced = service.pipeline.release.probe == "enforce"
    wait_s = 1.0
    while True:
        deadline = Deadline.after_ms(_PROBE_MS, service.clock)
        found = service.probes[name] = await probe(service.pipeline.every_stage[name], deadline)
        if found.verdict is not Verdict.OK:
            note("warning", "stage probe", stage=name, verdict=found.verdict, code=found.code)
        if found.verdict is Verdict.OK or (found.verdict is not Verdict.FAILED and not enforced):
            break
        await asyncio.sleep(wait_s)
        wait_s = min(_LONGEST_WAIT_SECONDS, wait_s * 2)
    stages = service.pipeline.normal.stages
    spec = stages.large if name is StageName.LARGE else stages.small
    observed = service.pipeline.every_stage[name].observed
    for line in differences(spec, observed) if spec is not None and observed is not None else ():
        note("warning", "stage is not as declared", stage=name, what=line)
