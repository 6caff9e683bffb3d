"""Bring one release in: its activation, whose end is always written down."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final, Generic, TypeVar

from cascade.rollout.activation import Activation, ActivationStep, Asked, Refused
from cascade.rollout.history import Happened, KeptCandidate, RolloutState
from cascade.rollout.ledger import Ledger
from cascade.rollout.moves import Moves
from cascade.rollout.ports import Serving, Shown

__all__ = ["BringingIn"]

Release = TypeVar("Release", bound=Serving)

_MOST_ATTEMPTS: Final = 2
"""How often the process may have ended while it activated one release; it may have been that release."""
_UNDER_WAY: Final = frozenset({RolloutState.ACTIVATING, RolloutState.RUNNING})


class BringingIn(Generic[Release]):
    """Activate releases, one at a time, and let them decide. ``step`` is the activation step under way, None for none."""

    def __init__(
        self, activation: Activation[Release], moves: Moves[Release], ledger: Ledger, shown: Shown | None = None
    ) -> None:
        self.step: ActivationStep | None = None
        self._activation = activation
        self._moves = moves
        self._ledger = ledger
        self._shown = shown
        self._one = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self._why: str | None = None
        activation.began = self._began

    async def run(self, kept: KeptCandidate) -> None:
        """Activate a release; a candidate before it is taken back first. Raises Refused.

        That it began is kept beforehand: a process that ends meanwhile knows of it when it starts again, and after
        the second time does not try a third.
        """
        async with self._one:
            self.step, self._why = ActivationStep.READ, None  # before the first await: a second start must see it
            self._moves.take_back(Happened.REPLACED, (f"{kept.release} was asked for",))
            before = self._ledger.remembered.candidate
            again = before is not None and before.digest == kept.digest
            tried = before.attempts if again and before is not None else 0
            self._ledger.set(state=RolloutState.ACTIVATING, candidate=kept.model_copy(update={"attempts": tried + 1}))
            try:
                await self._ledger.save()
                if self._why is not None:
                    raise Refused(ActivationStep.READ, (self._why,))
                if tried >= _MOST_ATTEMPTS:
                    raise Refused(ActivationStep.READ, (f"the process ended {tried} times while it was activated",))
                await self._activated(kept)
            except Refused as refused:
                self._refused(kept, refused)
                await self._ledger.save()
                raise
            except asyncio.CancelledError:  # the process stops: the next start tries as if this one had not
                if self._ledger.remembered.state is RolloutState.ACTIVATING:
                    self._ledger.set(candidate=kept.model_copy(update={"attempts": tried}))
                raise
            else:
                self._count("swapped")
            finally:
                self.step = None
            await self._ledger.save()

    async def cancel(self, why: str) -> bool:
        """End the activation under way, and wait until nothing is left of it; tell whether there was one."""
        if self.step is None:
            return False
        self._why = why
        if self._task is not None:
            self._task.cancel()
        async with self._one:
            return True

    async def resume(self) -> None:
        """Go on with the candidate that a restart left, from its step."""
        remembered = self._ledger.remembered
        kept = remembered.candidate
        if kept is None or kept.digest == self._moves.stable.digest:
            if remembered.state in _UNDER_WAY:
                self._ledger.set(state=RolloutState.IDLE, candidate=None)
            return
        if kept.controller is None and kept.by_source:
            self._ledger.set(state=RolloutState.IDLE)  # the source tells whether it is still desired
            return
        try:
            await self.run(kept)
        except Refused as refused:
            if refused.passing and kept.by_source:
                self._ledger.set(seen=None)  # it is tried again, from its first step

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
