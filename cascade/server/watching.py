"""Look at what servers say of themselves, and stop using a calibration that was fitted for others."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

from cascade.server.service import Service
from cascade.server.stage_pool import PooledStage
from cascade.stages.base import Stage

__all__ = ["watch_stages"]

_UNANSWERED_SECONDS: Final = 2.0
"""A server that did not answer is looked at again soon: it may come back as another."""
_APART_SECONDS: Final = 1.0
"""A server that goes and comes again and again is looked at once in this time."""


async def watch_stages(service: Service, seconds: float) -> None:
    """Look at every stage that any release has, again and again, and settle what decides.

    That is ``seconds`` apart, and when a server returns. Stages that two releases share are looked at once.
    """
    watched: dict[PooledStage, asyncio.Task[None]] = {}
    async with asyncio.TaskGroup() as group:
        while True:
            service.pool.changed.clear()
            there = set(service.pool)
            for gone in watched.keys() - there:
                watched.pop(gone).cancel()
            for pooled in service.pool:
                if pooled not in watched:
                    watched[pooled] = group.create_task(_watch(service, pooled, seconds))
            await service.pool.changed.wait()


async def _watch(service: Service, pooled: PooledStage, seconds: float) -> None:
    stage = pooled.stage
    answered = stage.observed is not None
    while True:
        wait_s = seconds if answered else min(seconds, _UNANSWERED_SECONDS)
        returned = await _returns_within(stage, wait_s)
        try:
            answered = await stage.look_again()
            _settle(service, stage)
        except Exception as error:  # noqa: BLE001 - the boundary of a background task: it goes on looking
            service.faults(error)
            answered = False
        if returned:
            await asyncio.sleep(_APART_SECONDS)


def _settle(service: Service, stage: Stage) -> None:
    """Settle the releases that a stage is one of."""
    for release in service.traffic.releases:
        if any(one is stage for one in release.stages.values()):
            release.settle()


async def _returns_within(stage: Stage, seconds: float) -> bool:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await stage.returned()
            return True
    return False
