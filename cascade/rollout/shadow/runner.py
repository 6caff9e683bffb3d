"""Score a sample of answered requests by a candidate release too, beside the answers and for nobody."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final

from cascade.decision import Ranking
from cascade.guard.deadline import Clock, Deadline
from cascade.pipeline import Pipeline
from cascade.pipeline.rounds import Rounds
from cascade.policy.rollout_rules import ShadowRules
from cascade.rollout.shadow.aside_stage import AsideStages
from cascade.rollout.shadow.deciding import decide_aside, is_as_planned
from cascade.rollout.shadow.line import Line, Waiting, bytes_of
from cascade.rollout.shadow.outcome import ShadowOutcome
from cascade.rollout.shadow.sampling import is_shadowed
from cascade.rollout.shadow.silver import ranking_loss, score_silver
from cascade.telemetry.records import Assignment
from cascade.types import Request, StageName

__all__ = ["ShadowRunner"]

_K: Final = 10


class ShadowRunner:
    """Have a candidate decide what the stable release answered, and tell by how much its order is worse.

    ``offer`` is given every answer of the stable release, and takes the sample of it; what it takes is scored in tasks
    of its own within ``rules``. Then the stable large stage scores the whole depth, and ``observe_pair`` is told nDCG@k
    of the stable order minus that of the candidate's, where both are known. ``count`` is told of every request of the
    sample exactly once, ``count_fault`` of faults of ours.

    ``stable`` and ``candidate`` return the pipelines of the moment at normal; ``salt`` is the candidate's digest.
    Nothing begins while ``paused`` tells that there is load. The candidate's decision is recorded where its pipeline
    records, as the shadow of the stable one.
    """

    def __init__(
        self,
        rules: ShadowRules,
        *,
        stable: Callable[[], Pipeline],
        candidate: Callable[[], Pipeline],
        salt: str,
        clock: Clock,
        paused: Callable[[], bool],
        observe_pair: Callable[[float], None],
        count: Callable[[ShadowOutcome], None],
        count_fault: Callable[[BaseException], None],
        stages: AsideStages | None = None,
        k: int = _K,
    ) -> None:
        self._rules = rules
        self._stable = stable
        self._candidate = candidate
        self._salt = salt
        self._clock = clock
        self._paused = paused
        self._observe_pair = observe_pair
        self._count = count
        self._count_fault = count_fault
        self._stages = stages or AsideStages(clock)
        self._k = k
        self._line = Line(rules)
        self._under_way: set[asyncio.Task[ShadowOutcome]] = set()
        self._closed = False

    @property
    def in_flight(self) -> int:
        """Return how many are being scored."""
        return len(self._under_way)

    @property
    def waiting(self) -> int:
        """Return how many wait to be scored."""
        return len(self._line)

    @property
    def held_bytes(self) -> int:
        """Return about how many bytes of text are held for those."""
        return self._line.size

    def offer(self, request: Request, ranking: Ranking, assigned: Assignment) -> None:
        """Take an answered request if it is in the sample. Never waits; what it takes is looked at once the answer left."""
        if not self._closed and is_shadowed(ranking.decision.id, self._salt, self._rules.share):
            asyncio.get_running_loop().call_soon(self._take, request, ranking, assigned)

    async def aclose(self) -> None:
        """Cancel what is under way, wait for its end, and let go of what waits."""
        self._closed = True
        while self._line:
            self._end(self._line.take(), ShadowOutcome.CLOSED)
        await asyncio.sleep(0)  # what has not begun would not learn that it is cancelled
        for task in list(self._under_way):
            task.cancel()
        await asyncio.gather(*self._under_way, return_exceptions=True)

    def _take(self, request: Request, ranking: Ranking, assigned: Assignment) -> None:
        decision = ranking.decision
        order = [item.index for item in ranking.results[: self._k]]
        waiting = Waiting(request, order, decision, assigned, bytes_of(request))
        refused: ShadowOutcome | None
        if self._closed:
            refused = ShadowOutcome.CLOSED
        elif not is_as_planned(decision):
            refused = ShadowOutcome.STABLE_DEGRADED
        elif self._paused():
            refused = ShadowOutcome.PAUSED
        else:
            refused = self._line.refuses(waiting, free=self._rules.in_flight - self.in_flight)
        if refused is not None:
            self._count(refused)
            return
        self._line.put(waiting)
        self._begin()

    def _begin(self) -> None:
        """Begin with as many as may be under way."""
        while self._line and self.in_flight < self._rules.in_flight and not self._closed:
            waiting = self._line.take()
            if self._paused():
                self._end(waiting, ShadowOutcome.PAUSED)
                continue
            task = asyncio.create_task(self._score(waiting), name="shadow")
            self._under_way.add(task)
            task.add_done_callback(partial(self._ended, waiting))

    def _ended(self, waiting: Waiting, task: asyncio.Task[ShadowOutcome]) -> None:
        self._under_way.discard(task)
        self._end(waiting, ShadowOutcome.CLOSED if task.cancelled() else task.result())
        self._begin()

    def _end(self, waiting: Waiting, outcome: ShadowOutcome) -> None:
        self._line.let_go(waiting)
        self._count(outcome)

    async def _score(self, waiting: Waiting) -> ShadowOutcome:
        deadline = Deadline.after_ms(self._rules.max_ms, self._clock)
        try:
            async with deadline.timeout():
                return await self._compare(waiting, deadline)
        except TimeoutError:
            return ShadowOutcome.TIMED_OUT
        except Exception as error:  # noqa: BLE001 - the boundary of a background task
            self._count_fault(error)
            return ShadowOutcome.FAULT

    async def _compare(self, waiting: Waiting, deadline: Deadline) -> ShadowOutcome:
        request, stable = waiting.request, waiting.decision
        both = Assignment(waiting.assigned.probability * self._rules.share, of=stable.id)
        ranking = await decide_aside(
            self._candidate(),
            self._stages,
            request,
            new_id=f"{stable.id}-shadow",
            deadline=deadline,
            assigned=both,
        )
        candidate = ranking.decision
        if not is_as_planned(candidate):
            return ShadowOutcome.CANDIDATE_DEGRADED
        if self._paused():
            return ShadowOutcome.PAUSED
        stages = self._stages.anew(self._stable().every_stage)
        if StageName.LARGE not in stages or stages[StageName.LARGE].is_listwise:
            return ShadowOutcome.NO_LARGE_STAGE
        # What was answered counts: a caller who asked for three documents saw no fourth.
        k = min(self._k, len(waiting.order))
        depth = min(len(request.candidates), max(stable.depth, candidate.depth, k))
        rounds = Rounds(stages, self._clock, self._count_fault)
        gains = await score_silver(rounds, request, f"{stable.id}-silver", depth, k, deadline)
        if isinstance(gains, ShadowOutcome):
            return gains
        self._observe_pair(ranking_loss(waiting.order, [item.index for item in ranking.results], gains, k))
        return ShadowOutcome.COMPARED
