"""Build the desk of a running service."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Mapping
from typing import Any

from cascade.policy.release import Release
from cascade.rollout.activation import Activation
from cascade.rollout.bringing_in import BringingIn
from cascade.rollout.bundle import Bundle
from cascade.rollout.desk import Desk
from cascade.rollout.finding import find_release, taken
from cascade.rollout.foreseen import foreseen
from cascade.rollout.guardrails import time_to_rollback
from cascade.rollout.history import KeptCandidate
from cascade.rollout.judge import judge_of, shown_before
from cascade.rollout.ledger import Ledger
from cascade.rollout.moves import Moves
from cascade.rollout.shadow import GoldQueries
from cascade.rollout.sources.address import shown_place
from cascade.rollout.store import Stored
from cascade.rollout.trial import Judge
from cascade.server.active import ActiveRelease
from cascade.server.reading import nameable
from cascade.server.rollout_start import Begun
from cascade.server.service import Service
from cascade.server.settings import Settings
from cascade.server.shadowing import gold_of, shadowing

__all__ = ["open_desk"]


@contextlib.asynccontextmanager
async def open_desk(
    service: Service, settings: Settings, begun: Begun, environment: Mapping[str, str] = os.environ
) -> AsyncIterator[Desk[ActiveRelease]]:
    """Give the desk that moves a service's traffic; its loop is not run yet. At the end the candidate is given back."""
    traffic, faults, clock = service.traffic, service.faults, service.clock
    arms = service.metrics.arms
    ledger = Ledger(begun.remembered, begun.keeps, ended=arms.rolled_out, kept=arms.state_kept)
    gold: dict[str, GoldQueries] = {}

    def prepare(bundle: Bundle) -> None:
        """Work out off the loop what takes a while: the judged queries, and how soon harm is met."""
        gold.clear()  # of a release that was refused since, or that decided everything at once
        judged = gold_of(bundle)
        if judged is not None:
            gold[bundle.loaded.digest] = judged
        time_to_rollback(bundle.loaded.release.rollout, 1.0)

    def judge(stable: ActiveRelease, candidate: ActiveRelease, kept: Mapping[str, Any] | None) -> Judge:
        return judge_of(stable.bundle.loaded.release, candidate.bundle.loaded.release, now=clock(), kept=kept)

    async def shown_by(kept: KeptCandidate) -> dict[str, Any]:
        return await asyncio.to_thread(shown_before, traffic.stable.bundle.loaded.release, kept)

    async def find(wanted: str) -> Stored:
        return await asyncio.to_thread(find_release, wanted, begun.store, settings.releases_folder)

    async def put(bundle: bytes) -> Stored:
        return await asyncio.to_thread(taken, begun.store.put, bundle)

    async def foresee(stable: ActiveRelease, wanted: str, per_s: float) -> dict[str, Any]:
        return await asyncio.to_thread(foretold, stable.bundle.loaded.release, wanted, per_s)

    def foretold(stable: Release, wanted: str, per_s: float) -> dict[str, Any]:
        return foreseen(stable, find_release(wanted, begun.store, settings.releases_folder, keep=False), per_s)

    moves = Moves(
        traffic,
        ledger,
        judge_of=judge,
        beside_of=lambda stable, candidate, judge: shadowing(
            service, stable, candidate, judge, gold.pop(candidate.digest, None)
        ),
        count_fault=faults,
        shown=service.metrics.arms,
    )
    for one in begun.choices.passed_over:
        moves.passed_over(one.release, one.digest, one.step, (one.why,))
    activation = Activation(
        nameable(settings, environment),
        service.open_release,
        clock=clock,
        count_fault=faults,
        keys=begun.keys,
        prepare=prepare,
    )
    desk = Desk(
        moves,
        BringingIn(activation, moves, ledger, service.metrics.arms, shown_by=shown_by),
        ledger,
        find=find,
        put=put if settings.release_keys_file is not None else None,
        foresee=foresee,
        clock=clock,
        count_fault=faults,
        source=begun.source,
        source_name="" if settings.release is None else shown_place(settings.release),
        lenient=not settings.strict_activation,
        within=_within,
    )
    traffic.outcomes = desk.told
    try:
        yield desk
    finally:
        await desk.aclose()


def _within(release: ActiveRelease, per_s: float) -> list[dict[str, Any]]:
    """Return how soon each guardrail rolls a release back; in seconds only where there is traffic."""
    rows = time_to_rollback(release.bundle.loaded.release.rollout, per_s or 1.0)
    return rows if per_s else [row | {"seconds": None} for row in rows]
