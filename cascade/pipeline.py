"""One request from candidates to ranking: the only place that joins decisions and I/O."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from cascade.errors import NotAnswered, StageError
from cascade.guard.deadline import Clock, Deadline
from cascade.policy.budget import small_budget_ms
from cascade.policy.clip import texts_to_score
from cascade.policy.depth import choose_depth
from cascade.policy.escalation import choose_escalated
from cascade.policy.merge import merge, order_by_score, outward_scores, rank_changes, to_unit
from cascade.policy.release import Release
from cascade.stages.base import Stage
from cascade.types import (
    Decision,
    DegradedReason,
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
    that no stage was awaited.
    """

    def __init__(
        self,
        release: Release,
        stages: Mapping[StageName, Stage],
        *,
        clock: Clock,
        new_id: Callable[[], str],
        hash_query: Callable[[str], str],
        count_fault: Callable[[BaseException], None],
    ) -> None:
        self.release = release
        self.stages = stages
        self._clock = clock
        self._new_id = new_id
        self._hash_query = hash_query
        self._count_fault = count_fault

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
        if ranking.decision.degraded and (request.fail_closed or self.release.fallback == "error"):
            raise NotAnswered(ranking.decision)
        return ranking

    async def _run_stages(self, run: _Run, deadline: Deadline) -> None:
        count = len(run.request.candidates)
        if run.request.query.is_blank:
            return
        run.depth = choose_depth(self.release.depth, self.release.limits, count)
        order: Sequence[int] = range(run.depth)
        if StageName.SMALL in self.stages and run.depth:
            large_follows = bool(choose_escalated(self.release.escalation, order)) and StageName.LARGE in self.stages
            budget_ms = small_budget_ms(self.release.budgets, deadline.remaining_ms(), large_follows=large_follows)
            run.small = await self._round(run, StageName.SMALL, order, deadline, budget_ms)
            unscored = [index for index in order if index not in run.small]
            order = [*order_by_score(sorted(run.small), run.small), *unscored]
            if run.small and run.request.small_only:
                return
        run.escalated = choose_escalated(self.release.escalation, order)
        if StageName.LARGE in self.stages and run.escalated:
            run.large = await self._round(
                run, StageName.LARGE, sorted(run.escalated), deadline, self.release.budgets.large_ms
            )

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
                call_id=f"{run.id}-{name}",
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

    def _rank(self, run: _Run, started: float, asked_ms: float) -> Ranking:
        candidates = run.request.candidates
        order, placed_by = merge(len(candidates), run.small, run.large)
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
            escalated=tuple(run.escalated),
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

    def _unit_score(self, run: _Run, stage: StageName, index: int) -> float:
        scores = run.large if stage is StageName.LARGE else run.small
        return to_unit(scores[index], self.stages[stage].space)


@dataclass(slots=True)
class _Run:
    """What is known of one request so far."""

    request: Request
    id: str
    depth: int = 0
    small: dict[int, float] = field(default_factory=dict)
    large: dict[int, float] = field(default_factory=dict)
    escalated: Sequence[int] = ()
    excluded: set[int] = field(default_factory=set)
    rounds: list[Round] = field(default_factory=list)
    degraded: list[DegradedReason] = field(default_factory=list)
    awaited_s: float = 0.0

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
