"""The answer that a run comes to: its order, the outward scores, and the decision behind it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from cascade.calibration.calibrated import Calibration
from cascade.decision import Decision, Level, RankedCandidate, Ranking
from cascade.guard.deadline import Clock
from cascade.pipeline.run import Run
from cascade.policy.escalation import orders_by_fit
from cascade.policy.merge import merge, movement, outward_scores, rank_changes, rank_scores, to_unit
from cascade.policy.release import Release
from cascade.stages.base import Stage
from cascade.telemetry.spans import trace_id_now
from cascade.types import Arm, ScoreSpace, StageName

__all__ = ["Answering"]


@dataclass(frozen=True, slots=True)
class Answering:
    """Answer by one release at one level. ``hash_query`` is what tells equal queries in logs."""

    release: Release
    level: Level
    calibration: Calibration | None
    stages: Mapping[StageName, Stage]
    clock: Clock
    hash_query: Callable[[str], str]
    arm: Arm = Arm.STABLE

    def rank(self, run: Run, started: float, asked_ms: float, arm: Arm | None = None) -> Ranking:
        """Return the best order that the run's scores make, and what was decided; ``started`` is on the clock.

        ``arm`` is the one that the request was given to, None for that of this pipeline.
        """
        request = run.request
        candidates = request.candidates
        order, placed_by = merge(len(candidates), run.small, self._block(run))
        ranks_only = self._gives_ranks(placed_by[0])
        scores = rank_scores(len(order)) if ranks_only else outward_scores(order, placed_by, self._unit_score(run))
        top_n = len(order) if request.top_n is None else min(request.top_n, len(order))
        results = tuple(
            RankedCandidate(index, candidates[index].id, score, stage)
            for index, score, stage in zip(order[:top_n], scores, placed_by, strict=False)
        )
        elapsed_s = self.clock() - started
        decision = Decision(
            id=run.id,
            dialect=request.dialect,
            release=self.release.release,
            level=self.level,
            tenant=request.tenant,
            query_hash=self.hash_query(request.query.reveal()),
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
            arm=self.arm if arm is None else arm,
            ranks_only=ranks_only,
            movement=movement(run.small, order) if run.large else None,
            best_small=None if self.calibration is None else self.calibration.best_small(run.small),
            trace_id=trace_id_now(),
        )
        return Ranking(results, decision)

    def _block(self, run: Run) -> Mapping[int, float]:
        """Return what the scored block is ordered by: the large scores, or the calibration's fitted order."""
        if not orders_by_fit(self.release.escalation) or self.calibration is None or run.first is None:
            return run.large
        scores = self.calibration.final_scores(run.first, run.known().large)
        return run.large if scores is None else {index: float(scores[index]) for index in run.large}

    def _gives_ranks(self, first: StageName) -> bool:
        """Tell whether what placed the head has no scores: first-stage order, or a stage that orders lists.

        Scores of the stages below it would then be scores of nothing that stands above them.
        """
        return first is StageName.RETRIEVAL or self.stages[first].space is ScoreSpace.RANK

    def _unit_score(self, run: Run) -> Callable[[StageName, int], float]:
        """Return what gives the score in [0, 1] that a stage gave a candidate."""
        spaces = {stage: asked.space for stage, asked in self.stages.items()}
        # Mode observe answers as before, its scores too.
        used = self.calibration if self.release.mode == "cascade" else None

        def unit_score(stage: StageName, index: int) -> float:
            is_large = stage is StageName.LARGE
            score = (run.large if is_large else run.small)[index]
            relevance = None if used is None else used.relevance("large" if is_large else "small", score)
            return to_unit(score, spaces[stage]) if relevance is None else relevance

        return unit_score
