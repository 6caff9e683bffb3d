"""Answer one request by one release: which stage is asked for what, and what becomes of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from cascade.calibration.calibrated import Calibration
from cascade.decision import Action, DegradedReason, Ranking
from cascade.errors import NotAnswered
from cascade.guard.beside import Beside
from cascade.guard.deadline import Clock, Deadline
from cascade.guard.pressure import Pressure
from cascade.guard.under_way import UnderWay
from cascade.pipeline.answer import Answering
from cascade.pipeline.keeping import Keeping
from cascade.pipeline.rounds import Planned, Rounds
from cascade.pipeline.run import Run
from cascade.pipeline.tap import Tap
from cascade.policy.budget import small_budget_ms
from cascade.policy.depth import DepthReason, choose_depth
from cascade.policy.escalation import Choice, choose_round, goes_direct, most_escalated
from cascade.policy.inputs import signals_of
from cascade.policy.levels import at_level, changes_means, level_named
from cascade.policy.release import Release
from cascade.stages.base import Stage
from cascade.telemetry.records import Assignment, Recorder
from cascade.telemetry.span_schema import Attribute, SpanName
from cascade.telemetry.spans import NOTHING, child
from cascade.types import Arm, Request, StageName

__all__ = ["Pipeline"]

_TO_THE_ONE: Final = Assignment()
"""Where traffic is not split."""


class Pipeline:
    """Answer requests by one release at one of its load levels, from beginning to end.

    ``normal`` is the release as it stands, and ``release`` what it is at ``level``, worked out once. ``stages`` are
    those that the level asks, ``every_stage`` those of the release.

    The order given back is always whole: the large stage's block on top, then the small order, then
    first-stage order, as far as each stage answered in time. ``own_ms`` of a decision is the time
    that no stage was awaited. ``calibration`` is the one that the release names, None where it names none or
    where it was fitted for other stages: then the safe mode decides. ``recorder`` is told of every
    decided request; in mode observe, ``beside`` bounds how many the small stage scores at a time for it.
    ``under_way`` can end the time of every request at once. ``pressure`` is told of every request.
    ``arm`` is what decisions are tagged with whose request was given to none. ``tap`` is offered every request that it answered.
    """

    def __init__(
        self,
        release: Release,
        stages: Mapping[StageName, Stage],
        *,
        level: str | None = None,
        calibration: Calibration | None = None,
        clock: Clock,
        new_id: Callable[[], str],
        hash_query: Callable[[str], str],
        count_fault: Callable[[BaseException], None],
        recorder: Recorder | None = None,
        beside: Beside | None = None,
        under_way: UnderWay | None = None,
        pressure: Pressure | None = None,
        arm: Arm = Arm.STABLE,
        tap: Tap | None = None,
    ) -> None:
        self.normal = release
        self.level = level_named(release, level)
        self.release = at_level(release, self.level.name)
        self.stages = _asked(self.release, stages) if self.level.is_above_normal else stages
        self.every_stage = stages
        self._calibration = calibration
        self._clock = clock
        self._new_id = new_id
        self._count_fault = count_fault
        self._under_way = under_way or UnderWay()
        self._pressure = pressure or Pressure(clock)
        self._rounds = Rounds(self.stages, clock, count_fault)
        self._answering = Answering(self.release, self.level, calibration, self.stages, clock, hash_query, arm)
        self._keeping = Keeping(
            self.release, calibration, self._rounds, clock, count_fault, recorder, beside, tap or Tap()
        )

    @property
    def takes_instruction(self) -> bool:
        """Tell whether every stage passes an instruction of the caller's on: at any level, as load refuses nothing."""
        return bool(self.every_stage) and all(stage.takes_instruction for stage in self.every_stage.values())

    def aside(
        self,
        stages: Mapping[StageName, Stage],
        *,
        within_ms: float,
        new_id: Callable[[], str],
        records: bool = True,
    ) -> Pipeline:
        """Return a pipeline that decides as the release does at normal, for nobody: its arm is ``shadow``.

        ``stages`` stand in for its own. Stages and requests have ``within_ms``, whatever the budgets say. Its decisions
        are recorded where this one's are, if at all; no pressure is told of them, and none is answered with an error.
        """
        reserve_ms = min(self.normal.budgets.reserve_ms, within_ms / 2)
        times = {"total_ms": within_ms, "small_ms": within_ms, "large_ms": within_ms, "reserve_ms": reserve_ms}
        budgets = self.normal.budgets.model_copy(update=times)
        return Pipeline(
            self.normal.model_copy(update={"budgets": budgets, "fallback": "original-order"}),
            stages,
            calibration=self._calibration,
            clock=self._clock,
            new_id=new_id,
            hash_query=self._answering.hash_query,
            count_fault=self._count_fault,
            recorder=self._keeping.recorder if records else None,
            arm=Arm.SHADOW,
        )

    async def rerank(
        self,
        request: Request,
        *,
        arrived: float | None = None,
        unscored: DegradedReason | None = None,
        assigned: Assignment = _TO_THE_ONE,
    ) -> Ranking:
        """Return the ranking of a valid request before its deadline.

        ``arrived`` is when the request came, on the pipeline's clock. ``unscored`` is why no stage is to be asked:
        then the answer is first-stage order, at once. ``assigned`` is how the request came to its arm, for the
        decision and the record. Raises NotAnswered only for a caller that asked for an error in place of a degraded answer.
        """
        started = self._clock() if arrived is None else arrived
        run = Run(request, self._new_id())
        budgets = self.release.budgets
        asked_ms = budgets.total_ms if request.deadline_ms is None else request.deadline_ms
        deadline = Deadline(started + asked_ms / 1000.0, self._clock)
        self._pressure.arrived(self.level.index)
        try:
            if unscored is not None:
                run.degrade(unscored)
                run.depth_reason = DepthReason.NOT_ADMITTED
            else:
                async with deadline.earlier_by_ms(budgets.reserve_ms / 2).timeout() as scope:
                    with self._under_way.within(scope):
                        await self._run_stages(run, deadline.earlier_by_ms(budgets.reserve_ms))
        except TimeoutError:
            ended = self._under_way.ended
            run.degrade(DegradedReason.DEADLINE_TOO_SHORT if ended else DegradedReason.STAGE_TIMEOUT)
        except Exception as error:  # noqa: BLE001 - the request boundary: a fault of ours costs quality, never the answer
            self._count_fault(error)
            run.degrade(DegradedReason.INTERNAL_ERROR)
        finally:
            self._pressure.left(self.level.index)
        if self.level.is_above_normal and changes_means(self.normal, self.release, request):
            run.degrade(DegradedReason.LOAD_LEVEL)
        with child(SpanName.FALLBACK) if run.degraded else NOTHING as span:
            ranking = self._answering.rank(run, started, asked_ms, assigned.arm)
            span.set(Attribute.STAGE, ranking.decision.stage)
            span.set(Attribute.DEGRADED_REASONS, ranking.decision.degraded)
        self._pressure.answered(ranking.decision, admitted=unscored is None)
        self._keeping.keep(run, ranking, assigned)
        if ranking.decision.degraded and self.release.refuses(request):
            raise NotAnswered(ranking.decision)
        return ranking

    async def _run_stages(self, run: Run, deadline: Deadline) -> None:
        if run.request.query.is_blank:
            return
        release = self.release
        if release.mode == "observe":
            await self._observe(run, deadline.within_ms(release.budgets.large_ms))
            return
        with child(SpanName.DEPTH) as span:
            signals = run.signals = signals_of(release, run.request)
            chosen = choose_depth(release.depth, release.limits, len(run.request.candidates), signals)
            run.depth, run.depth_reason = chosen.depth, chosen.why
            span.set(Attribute.DEPTH, chosen.depth)
            span.set(Attribute.DEPTH_REASON, chosen.why)
            span.set(Attribute.QUERY_CLASS, signals.query_class)
        direct = 0 if run.request.small_only else goes_direct(release.escalation, signals)
        if direct and run.depth and StageName.LARGE in self.stages:
            run.action = Action.DIRECT
            head, within = range(min(direct, run.depth)), deadline.within_ms(release.budgets.large_ms)
            await self._large(run, head, self._plan_large(run, head, within))
            if run.large:
                return
        if StageName.SMALL in self.stages and run.depth:
            follows = StageName.LARGE in self.stages and run.action is not Action.DIRECT
            large_follows = follows and bool(most_escalated(release.escalation, run.depth))
            budget_ms = small_budget_ms(release.budgets, deadline.remaining_ms(), large_follows=large_follows)
            run.small = await self._rounds.score(run, StageName.SMALL, range(run.depth), deadline, budget_ms)
            if run.small and run.request.small_only:
                return
        if StageName.LARGE in self.stages and run.depth and run.action is not Action.DIRECT:
            await self._escalate(run, deadline.within_ms(release.budgets.large_ms))

    async def _observe(self, run: Run, deadline: Deadline) -> None:
        """Score with the large stage all that may be scored, as if there were no cascade."""
        run.depth = min(self.release.limits.max_candidates, len(run.request.candidates))
        run.depth_reason, run.action = DepthReason.OBSERVE, Action.QUERY
        every = range(run.depth)
        await self._large(run, every, self._plan_large(run, every, deadline))

    async def _escalate(self, run: Run, deadline: Deadline) -> None:
        """Send what the release escalates, in one round or two, while the deadline allows."""
        choice: Choice | None = None
        while choice is None or choice.more:
            with child(SpanName.ESCALATION) as span:
                choice = choose_round(self.release.escalation, run.known(), self._calibration, choice)
                if self._is_ordered(run, choice.indices):
                    choice = Choice((), Action.NONE)
                span.set(Attribute.ACTION, choice.action)
                span.set(Attribute.ESCALATED, len(choice.indices))
                span.set(Attribute.MISFIT, choice.misfit)
            planned = self._plan_large(run, choice.indices, deadline)
            if planned is None and run.large and choice.indices:
                return  # the first round stands, and so does its action
            run.action, run.misfit, run.first = choice.action, choice.misfit, choice.first
            run.estimates = choice.estimates
            # Where the small stage failed its round has told why, and that the calibration needs its scores is no news.
            if choice.misfit is not None and (run.small or not run.degraded):
                run.degrade(DegradedReason.CALIBRATION_MISMATCH)
            if not choice.indices or not await self._large(run, choice.indices, planned):
                return

    def _is_ordered(self, run: Run, indices: Sequence[int]) -> bool:
        """Tell whether the large stage orders lists and would be shown fewer than two texts: that order is known."""
        if not self.stages[StageName.LARGE].is_listwise:
            return False
        candidates = run.request.candidates
        # without small scores, it is the large stage that puts blank ones behind
        return len([index for index in indices if not run.small or not candidates[index].text.is_blank]) < 2

    def _plan_large(self, run: Run, indices: Sequence[int], deadline: Deadline) -> Planned | None:
        if not indices:
            return None
        listwise = self.stages[StageName.LARGE].is_listwise  # then it is shown them in the order chosen, best first
        sent = indices if listwise else sorted(indices)
        return self._rounds.plan(run, StageName.LARGE, sent, deadline, deadline.remaining_ms())

    async def _large(self, run: Run, indices: Sequence[int], planned: Planned | None) -> bool:
        """Score ``indices`` at the large stage, best first; tell whether the round counts. None: there is no time."""
        run.escalated = (*run.escalated, *indices)
        got = {} if planned is None else await self._rounds.make(run, planned)
        run.large |= got
        return bool(got)


def _asked(release: Release, stages: Mapping[StageName, Stage]) -> dict[StageName, Stage]:
    """Return the stages that a release has."""
    there = {StageName.SMALL: release.stages.small, StageName.LARGE: release.stages.large}
    return {name: stage for name, stage in stages.items() if there.get(name) is not None}
