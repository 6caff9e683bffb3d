"""What runs beside a candidate for as long as it is tried."""

from __future__ import annotations

import asyncio

from cascade.pipeline.tap import Tap
from cascade.rollout.shadow.gold_run import GoldRun
from cascade.rollout.shadow.runner import ShadowRunner

__all__ = ["Shadowing"]


class Shadowing:
    """Offer what the stable release answers, by its ``tap``, to a runner, and have judged queries asked meanwhile."""

    def __init__(self, tap: Tap, runner: ShadowRunner, gold: GoldRun | None = None) -> None:
        self.runner = runner
        self.gold = gold
        self._tap = tap
        self._tap.offer = self._offer = runner.offer
        self._asking = None if gold is None else asyncio.create_task(gold.run(), name="judged queries")

    async def aclose(self) -> None:
        """Take no more, and cancel what is under way."""
        if self._tap.offer is self._offer:  # the next candidate's may be there already
            self._tap.offer = None
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.gather(self._asking, return_exceptions=True)
        await self.runner.aclose()
