"""Ask both releases the judged queries, once and slowly."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

from cascade.decision import Ranking
from cascade.guard.deadline import Clock, Deadline
from cascade.pipeline import Pipeline
from cascade.rollout.arms import place
from cascade.rollout.shadow.aside_stage import AsideStages
from cascade.rollout.shadow.deciding import decide_aside, is_as_planned
from cascade.rollout.shadow.gold import GoldQueries, GoldQuery
from cascade.rollout.shadow.outcome import ShadowOutcome
from cascade.rollout.shadow.silver import ranking_loss

__all__ = ["GoldRun"]

_TRIES: Final = 3
"""A query whose answer a stage spoilt is asked again, behind all others."""


class GoldRun:
    """Have both releases decide each judged query beside the traffic, and tell ``observe_gold`` of its ranking loss.

    It is no traffic: nothing of it is recorded. One query at a time, ``apart_s`` from the next, and none while ``paused``. The order is shuffled by ``salt``, the
    candidate's digest, since evidence is looked at along the way. A query counts once; one that a stage spoilt is asked
    again at the end, and left out and counted after the third time. ``done`` queries were asked before a restart.
    """

    def __init__(
        self,
        gold: GoldQueries,
        *,
        stable: Callable[[], Pipeline],
        candidate: Callable[[], Pipeline],
        salt: str,
        clock: Clock,
        paused: Callable[[], bool],
        observe_gold: Callable[[float], None],
        count_fault: Callable[[BaseException], None],
        stages: AsideStages | None = None,
        within_ms: float = 2000.0,
        apart_s: float = 0.2,
        done: int = 0,
    ) -> None:
        self._gold = gold
        self._stable = stable
        self._candidate = candidate
        self._salt = salt
        self._clock = clock
        self._paused = paused
        self._observe_gold = observe_gold
        self._count_fault = count_fault
        self._stages = stages or AsideStages(clock)
        self._within_ms = within_ms
        self._apart_s = apart_s
        self._order = sorted(range(len(gold.queries)), key=lambda number: place(str(number), f"gold {salt}"))
        self._left_out: Counter[ShadowOutcome] = Counter()
        self._compared = 0
        self.done = min(done, len(self._order))

    def told(self) -> dict[str, Any]:
        """Return how many judged queries there are, were compared since the start, and were left out for what."""
        return {
            "queries": len(self._order),
            "done": self.done,
            "compared": self._compared,
            "left_out": {str(why): count for why, count in sorted(self._left_out.items())},
        }

    async def run(self) -> None:
        """Ask what has not been asked. To be run as a task; cancelling it ends it at once."""
        left = [(number, 1) for number in self._order[self.done :]]
        while left:
            await asyncio.sleep(self._apart_s)
            if self._paused():
                continue
            number, tries = left.pop(0)
            why = await self._ask(number, tries)
            if why is not ShadowOutcome.COMPARED and tries < _TRIES:
                left.append((number, tries + 1))
                continue
            self.done += 1
            if why is ShadowOutcome.COMPARED:
                self._compared += 1
            else:
                self._left_out[why] += 1

    async def _ask(self, number: int, tries: int) -> ShadowOutcome:
        query, call_id = self._gold.queries[number], f"gold-{self._salt[-8:]}-{number}-{tries}"
        try:
            stable = await self._answer(self._stable(), query, f"{call_id}-stable")
            if not is_as_planned(stable.decision):
                return ShadowOutcome.STABLE_DEGRADED
            candidate = await self._answer(self._candidate(), query, f"{call_id}-shadow")
            if not is_as_planned(candidate.decision):
                return ShadowOutcome.CANDIDATE_DEGRADED
            self._observe_gold(ranking_loss(_order(stable), _order(candidate), query.gains, self._gold.k))
        except Exception as error:  # noqa: BLE001 - the boundary of a background task
            self._count_fault(error)
            return ShadowOutcome.FAULT
        return ShadowOutcome.COMPARED

    async def _answer(self, pipeline: Pipeline, query: GoldQuery, new_id: str) -> Ranking:
        deadline = Deadline.after_ms(self._within_ms, self._clock)
        return await decide_aside(pipeline, self._stages, query.request, new_id=new_id, deadline=deadline)


def _order(ranking: Ranking) -> list[int]:
    return [item.index for item in ranking.results]
