"""Probe the stages once they are there, and tell what is odd. No stage is shut out for it.

Where the release's ``probe`` is ``enforce``, readiness waits for it.
"""

from __future__ import annotations

import asyncio
from typing import Final

from cascade.guard.deadline import Clock, Deadline
from cascade.server.active import ActiveRelease
from cascade.stages.build import specs_of
from cascade.stages.doctor import differences
from cascade.stages.probe import Verdict, probe
from cascade.telemetry.logs import note
from cascade.types import StageName

__all__ = ["probe_stages"]

_PROBE_MS: Final = 5000.0
_LONGEST_WAIT_SECONDS: Final = 60.0


async def probe_stages(release: ActiveRelease, clock: Clock) -> None:
    """Probe every stage of a release until it answers, or where probes are enforced until it answers right.

    Findings are in the log and in ``release.probes``.
    """
    async with asyncio.TaskGroup() as group:
        for name in release.stages:
            group.create_task(_probe(release, name, clock))


async def _probe(release: ActiveRelease, name: StageName, clock: Clock) -> None:
    said, stage = release.bundle.loaded.release, release.stages[name]
    wait_s = 1.0
    while True:
        found = release.probes[name] = await probe(stage, Deadline.after_ms(_PROBE_MS, clock))
        if found.verdict is not Verdict.OK:
            note("warning", "stage probe", stage=name, verdict=found.verdict, code=found.code)
        if found.verdict is Verdict.OK or (found.verdict is not Verdict.FAILED and said.probe != "enforce"):
            break
        await asyncio.sleep(wait_s)
        wait_s = min(_LONGEST_WAIT_SECONDS, wait_s * 2)
    observed = stage.observed
    for line in differences(specs_of(said)[name], observed) if observed is not None else ():
        note("warning", "stage is not as declared", stage=name, what=line)
