"""One request from candidates to ranking: the only place that joins decisions and I/O."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from cascade.calibration.calibrated import Calibration, Estimate
from cascade.errors import NotAnswered, StageError
from cascade.guard.beside import Beside
from cascade.guard.deadline import Clock, Deadline
from cascade.policy.budget import small_budget_ms
from cascade.policy.clip import texts_to_score
from cascade.policy.depth import DepthReason, choose_depth
from cascade.policy.escalation import Choice, Known, choose_round, goes_direct, most_escalated, orders_by_fit
from cascade.policy.inputs import known_within, signals_of
from cascade.policy.merge import merge, outward_scores, rank_changes, to_unit
from cascade.policy.release import Release
from cascade.signals.compute import Signals
from cascade.stages.base import Stage
from cascade.telemetry.records import Decided, Recorder
from cascade.types import (
    Action,
    Decision,
    DegradedReason,
    Estimates,
    Exclusion,
    RankedCandidate,
    Ranking,
    Request,
    Round,
    StageName,
    StageScores,
)

__all__ = ["Pipeline"]


class Pipeline:
    """Answer requests by one release, from beginning to end.

    The order given back is always whole: the large stage's block on top, then the small order, then
    first-stage order, as far as each stage answered in time. ``own_ms`` of a decision is the time
    that no stage was awaited. ``calibration`` is the one that the release names, None where it names none or
    where it was fitted for other stages: then the safe mode decides. ``recorder`` is told of every
    decided request; in mode observe, ``beside`` bounds how many the small stage scores at a time for it.
    """

    def __init__(
        self,
        release: Release,
        stages: Mapping[StageName, Stage],
        *,
        calibration: Calibration | None = None,
        clock: Clock,
        new_id: Callable[[], str],
        hash_query: Callable[[str], str],
        count_fault: Callable[[BaseException], None],
        recorder: Recorder | None = None,
        beside: Beside | None = None,
    ) -> None:
        self.release = release
        self.stages = stages
        self._calibration = calibration
        self._clock = clock
        self._new_id = new_id
        self._hash_query = hash_query
        self._count_fault = count_fault
        self._recorder = recorder
        self._beside = beside

    @property
    def takes_instruction(self) -> bool:
        """Tell whether every stage passes an instruction of the caller's on."""
        return bool(self.stages) and all(stage.takes_instruction for stage in self.stages.values())

    async def rerank(self, request: Request, *, arrived: float | None = None) -> Ranking:
        """Return the ranking of a valid request before its deadline.

        ``arrived`` is when the request came, on the pipeline's clock. Raises NotAnswered only for a
        caller that asked for an error in place of a degraded answer.
        """
        started = self._clock() if arrived is None else arrived
        run = _Run(request, self._new_id())
        budgets = self.release.budgets
        asked_ms = budgets.total_ms if request.deadline_ms is None else request.deadline_ms
        deadline = Deadline(started + asked_ms / 1000.0, self._clock)
        try:
            async with deadline.earlier_by_ms(budgets.reserve_ms / 2).timeout():
                await self._run_stages(run, deadline.earlier_by_ms(budgets.reserve_ms))
        except TimeoutError:
            run.degrade(DegradedReason.STAGE_TIMEOUT)
        except Exception as error:  # noqa: BLE001 - the request boundary: a fault of ours costs quality, never the answer
            self._count_fault(error)
            run.degrade(DegradedReason.INTERNAL_ERROR)
        ranking = self._rank(run, started, asked_ms)
        self._record(run, ranking.decision)
        if ranking.decision.degraded and (request.fail_closed or self.release.fallback == "error"):
            raise NotAnswered(ranking.decision)
        return ranking

    async def _run_stages(self, run: _Run, deadline: Deadline) -> None:
        if run.request.query.is_blank:
            return
        release = self.release
        if release.mode == "observe":
            await self._observe(run, deadline.within_ms(release.budgets.large_ms))
            return
        signals = run.signals = signals_of(release, run.request)
        chosen = choose_depth(release.depth, release.limits, len(run.request.candidates), signals)
        run.depth, run.depth_reason = chosen.depth, chosen.why
        direct = 0 if run.request.small_only else goes_direct(release.escalation, signals)
        if direct and run.depth and StageName.LARGE in self.stages:
            run.action = Action.DIRECT
            await self._large(run, range(min(direct, run.depth)), deadline.within_ms(release.budgets.large_ms))
            if run.large:
                return
        if StageName.SMALL in self.stages and run.depth:
            follows = StageName.LARGE in self.stages and run.action is not Action.DIRECT
            large_follows = follows and bool(most_escalated(release.escalation, run.depth))
            budget_ms = small_budget_ms(release.budgets, deadline.remaining_ms(), large_follows=large_follows)
            run.small = await self._round(run, StageName.SMALL, range(run.depth), deadline, budget_ms)
            if run.small and run.request.small_only:
                return
        if StageName.LARGE in self.stages and run.depth and run.action is not Action.DIRECT:
            await self._escalate(run, deadline.within_ms(release.budgets.large_ms))

    async def _observe(self, run: _Run, deadline: Deadline) -> None:
        """Score with the large stage all that may be scored, as if there were no cascade."""
        run.depth = min(self.release.limits.max_candidates, len(run.request.candidates))
        run.depth_reason, run.action = DepthReason.OBSERVE, Action.QUERY
        await self._large(run, range(run.depth), deadline)

    async def _escalate(self, run: _Run, deadline: Deadline) -> None:
        """Send what the release escalates, in one round or two, while the deadline allows."""
        choice: Choice | None = None
        while choice is None or choice.more:
            choice = choose_round(self.release.escalation, self._known(run), self._calibration, choice)
            if run.large and run.ms_a_pair * len(choice.indices) > deadline.remaining_ms():
                run.degrade(DegradedReason.DEADLINE_TOO_SHORT)  # the first round stands, and so does its action
                return
            run.action, run.misfit, run.first = choice.action, choice.misfit, choice.first
            run.estimates = choice.estimates
            # Where the small stage failed its round has told why, and that the calibration needs its scores is no news.
            if choice.misfit is not None and (run.small or not run.degraded):
                run.degrade(DegradedReason.CALIBRATION_MISMATCH)
            if not choice.indices:
                return
            if not await self._large(run, choice.indices, deadline):
                return

    async def _large(self, run: _Run, indices: Sequence[int], deadline: Deadline) -> bool:
        """Score ``indices`` at the large stage, best first; tell whether the round counts."""
        run.escalated = (*run.escalated, *indices)
        began = self._clock()
        got = await self._round(run, StageName.LARGE, sorted(indices), deadline, deadline.remaining_ms())
        run.ms_a_pair = (self._clock() - began) * 1000 / len(indices)
        run.large |= got
        return bool(got)

    def _known(self, run: _Run) -> Known:
        """Return what is known within depth, as arrays in first-stage order."""
        return known_within(run.depth, run.request.candidates, run.small, run.large)

    async def _round(
        self, run: _Run, name: StageName, indices: Sequence[int], deadline: Deadline, budget_ms: float
    ) -> dict[int, float]:
        """Score ``indices`` at a stage; return the scores by index, empty where the round does not count."""
        stage = self.stages[name]
        model = stage.fingerprint.model
        within = deadline.within_ms(budget_ms)
        if within.remaining_ms() <= 0:
            run.degrade(DegradedReason.DEADLINE_TOO_SHORT)
            run.rounds.append(Round(name, model, 0, 0, 0, 0, DegradedReason.DEADLINE_TOO_SHORT, "not_sent", 0.0))
            return {}
        query, texts = texts_to_score(run.request, indices)
        began = self._clock()
        done: Round | None = None
        outcome, code, sent = DegradedReason.INTERNAL_ERROR, "fault", len(indices)
        try:
            scored = await stage.score(
                query,
                texts,
                deadline=within,
                call_id=run.call_id(name),
                instruction=run.request.instruction,
            )
            by_index = dict(zip(indices, scored.scores, strict=True))
            done = _record(name, model, scored, (self._clock() - began) * 1000)
        except StageError as error:
            outcome, code, sent = error.reason, error.code, error.sent
            run.degrade(outcome)
            return {}
        except Exception as error:  # noqa: BLE001 - a stage's fault of ours costs its round, not the other stage's
            self._count_fault(error)
            run.degrade(DegradedReason.INTERNAL_ERROR)
            return {}
        except asyncio.CancelledError:
            outcome, code = DegradedReason.STAGE_TIMEOUT, "cancelled"
            raise
        finally:  # whatever ended the round, the decision tells of it
            elapsed_s = self._clock() - began
            run.awaited_s += elapsed_s
            if done is None:
                done = Round(name, model, sent, 0, 0, 0, outcome, code, elapsed_s * 1000)
            run.rounds.append(done)
        run.excluded |= {indices[position] for position in scored.excluded}
        return {index: score for index, score in by_index.items() if score is not None}

    def _record(self, run: _Run, decision: Decision) -> None:
        """Hand the decided request to the recorder; in mode observe once the small stage has scored it too."""
        recorder = self._recorder
        if recorder is None or not recorder.wants(decision.query_hash):
            return
        decided = Decided(
            run.request, decision, self.release, self._calibration, run.small, run.large, frozenset(run.excluded)
        )
        if self.release.mode == "cascade" or not run.depth:
            self._keep(recorder, decided)
        elif self._beside is None or not self._beside.start(lambda: self._score_beside(recorder, decided)):
            self._keep(recorder, replace(decided, dropped=True))

    async def _score_beside(self, recorder: Recorder, decided: Decided) -> None:
        """Score an answered request with the small stage, in its own time, and have it recorded."""
        run = _Run(decided.request, decided.decision.id)
        budgets = self.release.budgets
        deadline = Deadline.after_ms(budgets.small_ms + budgets.reserve_ms, self._clock)
        try:
            async with deadline.earlier_by_ms(budgets.reserve_ms / 2).timeout():
                within = range(decided.decision.depth)
                run.small = await self._round(run, StageName.SMALL, within, deadline, budgets.small_ms)
        except TimeoutError:  # a stage that ignored its deadline: the round tells of it
            pass
        except Exception as error:  # noqa: BLE001 - the boundary of a background task
            self._count_fault(error)
        finally:
            excluded = decided.excluded | run.excluded
            beside = run.rounds[-1] if run.rounds else None
            self._keep(recorder, replace(decided, small=run.small, excluded=excluded, beside=beside))

    def _keep(self, recorder: Recorder, decided: Decided) -> None:
        try:
            recorder.record(decided)
        except Exception as error:  # noqa: BLE001 - a boundary of its own: what is kept of an answer never costs it
            self._count_fault(error)

    def _rank(self, run: _Run, started: float, asked_ms: float) -> Ranking:
        candidates = run.request.candidates
        order, placed_by = merge(len(candidates), run.small, self._block(run))
        scores = outward_scores(order, placed_by, lambda stage, index: self._unit_score(run, stage, index))
        top_n = len(order) if run.request.top_n is None else min(run.request.top_n, len(order))
        results = tuple(
            RankedCandidate(index, candidates[index].id, score, stage)
            for index, score, stage in zip(order[:top_n], scores, placed_by, strict=False)
        )
        elapsed_s = self._clock() - started
        decision = Decision(
            id=run.id,
            dialect=run.request.dialect,
            release=self.release.release,
            tenant=run.request.tenant,
            query_hash=self._hash_query(run.request.query.reveal()),
            candidates=len(candidates),
            top_n=top_n,
            depth=run.depth,
            depth_reason=run.depth_reason,
            action=run.action,
            escalated=tuple(run.escalated),
            estimates=run.estimates,
            misfit=run.misfit,
            query_class=run.signals.query_class,
            signals=run.signals.values,
            stage=placed_by[0],
            degraded=tuple(run.degraded),
            excluded=len(run.excluded),
            rounds=tuple(run.rounds),
            rank_changes_at_5=rank_changes(order, 5),
            deadline_ms=asked_ms,
            total_ms=elapsed_s * 1000,
            own_ms=max(0.0, elapsed_s - run.awaited_s) * 1000,
        )
        return Ranking(results, decision)

    def _block(self, run: _Run) -> Mapping[int, float]:
        """Return what the scored block is ordered by: the large scores, or the calibration's fitted order."""
        if not orders_by_fit(self.release.escalation) or self._calibration is None or run.first is None:
            return run.large
        scores = self._calibration.final_scores(run.first, self._known(run).large)
        return run.large if scores is None else {index: float(scores[index]) for index in run.large}

    def _unit_score(self, run: _Run, stage: StageName, index: int) -> float:
        score = (run.large if stage is StageName.LARGE else run.small)[index]
        name: Literal["small", "large"] = "large" if stage is StageName.LARGE else "small"
        # Mode observe answers as before, its scores too.
        used = self._calibration if self.release.mode == "cascade" else None
        relevance = None if used is None else used.relevance(name, score)
        return to_unit(score, self.stages[stage].space) if relevance is None else relevance


@dataclass(slots=True)
class _Run:
    """What is known of one request so far."""

    request: Request
    id: str
    depth: int = 0
    depth_reason: str = ""
    action: Action = Action.NONE
    estimates: Estimates | None = None
    misfit: str | None = None
    first: Estimate | None = None
    signals: Signals = field(default_factory=Signals)
    ms_a_pair: float = 0.0
    small: dict[int, float] = field(default_factory=dict)
    large: dict[int, float] = field(default_factory=dict)
    escalated: Sequence[int] = ()
    excluded: set[int] = field(default_factory=set)
    rounds: list[Round] = field(default_factory=list)
    degraded: list[DegradedReason] = field(default_factory=list)
    awaited_s: float = 0.0

    def call_id(self, name: StageName) -> str:
        """Return the id of the next call of a stage, another one for each round."""
        before = sum(round_.stage is name for round_ in self.rounds)
        return f"{self.id}-{name}" if not before else f"{self.id}-{name}-{before + 1}"

    def degrade(self, reason: DegradedReason) -> None:
        """Remember a reason once."""
        if reason not in self.degraded:
            self.degraded.append(reason)


def _record(name: StageName, model: str, scored: StageScores, elapsed_ms: float) -> Round:
    blank = sum(why is Exclusion.BLANK for why in scored.excluded.values())
    return Round(
        stage=name,
        model=model,
        sent=len(scored.scores) - blank,
        scored=len(scored.scores) - len(scored.excluded),
        blank=blank,
        refused=len(scored.excluded) - blank,
        outcome="ok",
        code="",
        elapsed_ms=elapsed_ms,
        cost=scored.cost,
    )
