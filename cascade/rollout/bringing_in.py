"""Bring one release in: its activation, whose end is always written down."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

from cascade.rollout.activation import Activation, ActivationStep, Asked, Refused
from cascade.rollout.history import UNDER_WAY, Happened, KeptCandidate, RolloutState
from cascade.rollout.ledger import Ledger
from cascade.rollout.moves import Moves
from cascade.rollout.ports import Serving, Shown

__all__ = ["BringingIn"]

Release = TypeVar("Release", bound=Serving)

_WAITED: Final = "it waited behind another one, and is no longer asked for"


async def _nothing_shown(kept: KeptCandidate) -> dict[str, Any]:
    return {"guardrails": []}


class BringingIn(Generic[Release]):
    """Activate releases, one at a time, and let them decide. ``step`` is the activation step under way, None for none.

    ``stops`` is set where the process is told to stop: what begins from then on is not what ends it.
    ``shown_by`` tells what a candidate that a restart left had shown: the guardrails with their numbers.
    """

    def __init__(
        self,
        activation: Activation[Release],
        moves: Moves[Release],
        ledger: Ledger,
        shown: Shown | None = None,
        *,
        shown_by: Callable[[KeptCandidate], Awaitable[dict[str, Any]]] = _nothing_shown,
    ) -> None:
        self.step: ActivationStep | None = None
        self.stops = False
        self._activation = activation
        self._moves = moves
        self._ledger = ledger
        self._shown = shown
        self._shown_by = shown_by
        self._one = asyncio.Lock()
        self._ended = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._why: str | None = None
        activation.began = self._began

    async def run(self, kept: KeptCandidate, *, wanted: Callable[[], bool] = lambda: True) -> None:
        """Activate a release; a candidate before it is taken back first. Raises Refused.

        ``wanted`` is asked when its turn comes; where it tells no, nothing is begun, nor written down. That it began is
        kept beforehand: a process that ends meanwhile knows of it when it starts again, and one that was killed too often
        with it does not try it once more.
        """
        async with self._one:
            if not wanted():
                raise Refused(ActivationStep.READ, (_WAITED,))
            self.step, self._why = ActivationStep.READ, None  # before the first await: a second start must see it
            self._ended = asyncio.Event()
            self._moves.take_back(Happened.REPLACED, (f"{kept.release} was asked for",))
            left = self._ledger.remembered.candidate
            before = left if left is not None and left.digest == kept.digest else kept
            begun = kept.model_copy(update={"attempts": before.attempts + (not self.stops)})
            self._ledger.set(state=RolloutState.ACTIVATING, candidate=begun)
            try:
                await self._ledger.save()
                if self._why is not None:
                    raise Refused(ActivationStep.READ, (self._why,))
                if before.is_given_up:
                    raise Refused(ActivationStep.READ, (before.killed,))
                await self._activated(begun)
            except Refused as refused:
                self._refused(kept, refused)
                await self._ledger.save()
                raise
            else:
                self._count("swapped")
            finally:
                self.step = None
                self._ended.set()
            await self._ledger.save()

    async def cancel(self, why: str) -> bool:
        """End the activation under way, and wait until nothing is left of it; tell whether there was one."""
        if self.step is None:
            return False
        self._why = why
        if self._task is not None:
            self._task.cancel()
        await self._ended.wait()
        return True

    async def resume(self) -> None:
        """Go on with the candidate that a restart left, from its step."""
        remembered = self._ledger.remembered
        kept = remembered.candidate
        if kept is None or kept.digest == self._moves.stable.digest:
            if remembered.state in UNDER_WAY:
                self._ledger.set(state=RolloutState.IDLE, candidate=None)
            return
        if kept.controller is None and kept.by_source and not kept.is_given_up:
            self._ledger.set(state=RolloutState.IDLE)  # the source tells whether it is still desired
            return
        if kept.controller is not None and kept.is_given_up:
            async with self._one:  # who starts another one meanwhile waits
                self._moves.give_up(kept, (kept.killed,), await self._shown_by(kept))
                await self._ledger.save()
            return
        try:
            await self.run(kept)
        except Refused as refused:
            if kept.by_source:  # where a server is away it is tried again, from its first step
                self._ledger.set(seen=None if refused.passing else kept.digest)

    async def _activated(self, kept: KeptCandidate) -> None:
        task = self._task = asyncio.create_task(self._swapped(kept), name="activation of a release")
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            task.cancel()
            await asyncio.wait([task])
            raise
        finally:
            self._task = None
        if task.cancelled():
            raise Refused(self.step or ActivationStep.READ, (self._said(),))
        task.result()

    def _said(self) -> str:
        return self._why or "it was cancelled"

    async def _swapped(self, kept: KeptCandidate) -> None:
        """Activate, and write it down in the same turn of the loop: no end of the task comes between."""
        asked = Asked(Path(kept.path), kept.digest, lenient=kept.lenient)
        release = await self._activation.run(asked, lambda release: self._moves.bring_in(release, kept))
        self._moves.brought_in(release, kept)

    def _began(self, step: ActivationStep) -> None:
        self.step = step

    def _refused(self, kept: KeptCandidate, refused: Refused) -> None:
        aborted = self._why is not None
        self._ledger.set(state=RolloutState.ABORTED if aborted else RolloutState.REFUSED, candidate=None)
        self._moves.turned_down(kept.release, kept.digest, refused.step, refused.why)
        what = Happened.ABORTED if aborted else Happened.REFUSED
        self._ledger.note(
            what,
            kept.release,
            kept.digest,
            step=refused.step,
            why=refused.why,
            at_once=kept.at_once,
            lenient=kept.lenient,
        )
        self._count("aborted" if aborted else refused.step)

    def _count(self, outcome: str) -> None:
        if self._shown is not None:
            self._shown.activated(outcome)
