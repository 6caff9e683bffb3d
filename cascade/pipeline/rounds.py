"""One round: some candidates of a request at one stage, within a deadline."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from cascade.decision import DegradedReason, Round
from cascade.errors import NO_TIME, StageError
from cascade.guard.deadline import Clock, Deadline
from cascade.guard.expected_ms import Fit
from cascade.guard.tenant import asking_for
from cascade.guard.token_size import pair_tokens
from cascade.pipeline.run import Run
from cascade.policy.clip import texts_to_score
from cascade.stages.asked import ask
from cascade.stages.base import Stage
from cascade.telemetry.span_schema import STAGE_SPANS, Attribute
from cascade.telemetry.span_tells import tell_round
from cascade.telemetry.spans import child
from cascade.text import Text
from cascade.types import Exclusion, StageName, StageScores

__all__ = ["Planned", "Rounds"]


@dataclass(frozen=True, slots=True)
class Planned:
    """A round that is about to be asked for: what leaves, its size, its time, and what was said of whether it fits."""

    stage: Stage
    name: StageName
    indices: Sequence[int]
    query: Text
    texts: list[Text]
    tokens: int
    within: Deadline
    fit: Fit


class Rounds:
    """Score candidates at stages. A round counts whole or not at all, and the run is told how it ended."""

    def __init__(
        self, stages: Mapping[StageName, Stage], clock: Clock, count_fault: Callable[[BaseException], None]
    ) -> None:
        self._stages = stages
        self._clock = clock
        self._count_fault = count_fault

    async def score(
        self, run: Run, name: StageName, indices: Sequence[int], deadline: Deadline, budget_ms: float
    ) -> dict[int, float]:
        """Score ``indices`` at a stage; return the scores by index, empty where the round does not count."""
        planned = self.plan(run, name, indices, deadline, budget_ms)
        return {} if planned is None else await self.make(run, planned)

    def plan(
        self, run: Run, name: StageName, indices: Sequence[int], deadline: Deadline, budget_ms: float
    ) -> Planned | None:
        """Return the round of ``indices`` at a stage, or None where its time is less than such a round takes."""
        stage = self._stages[name]
        within = deadline.within_ms(budget_ms)
        if within.remaining_ms() <= 0:
            self._leave_out(run, name, "not_sent")
            return None
        query, texts = texts_to_score(run.request, indices)
        tokens = pair_tokens(query, texts, stage.fingerprint.max_length)
        fit = stage.expected.judge(tokens, within.remaining_ms())
        if fit is Fit.TOO_LONG:
            self._leave_out(run, name, NO_TIME)
            return None
        return Planned(stage, name, indices, query, texts, tokens, within, fit)

    def _leave_out(self, run: Run, name: StageName, code: str) -> None:
        fingerprint = self._stages[name].fingerprint
        run.degrade(DegradedReason.DEADLINE_TOO_SHORT)
        run.rounds.append(Round(name, fingerprint.model, 0, 0, 0, 0, DegradedReason.DEADLINE_TOO_SHORT, code, 0.0))
        with child(STAGE_SPANS[name]) as span:
            tell_round(span, run.rounds, fingerprint)

    async def make(self, run: Run, planned: Planned) -> dict[int, float]:
        """Score what is planned; return the scores by index, empty where the round does not count."""
        with child(STAGE_SPANS[planned.name]) as span:
            span.set(Attribute.BUDGET_MS, planned.within.remaining_ms())
            try:
                return await self._make(run, planned)
            finally:
                tell_round(span, run.rounds, planned.stage.fingerprint)

    async def _make(self, run: Run, planned: Planned) -> dict[int, float]:
        stage, name, indices = planned.stage, planned.name, planned.indices
        model = stage.fingerprint.model
        began = self._clock()
        done: Round | None = None
        outcome, code, sent = DegradedReason.INTERNAL_ERROR, "fault", len(indices)
        queue_ms: float | None = None
        room_ms: float | None = None
        try:
            with asking_for(run.request.tenant):
                scored = await ask(
                    stage,
                    planned.query,
                    planned.texts,
                    tokens=planned.tokens,
                    fit=planned.fit,
                    deadline=planned.within,
                    call_id=run.call_id(name),
                    instruction=run.request.instruction,
                    clock=self._clock,
                )
            by_index = dict(zip(indices, scored.scores, strict=True))
            done = _done(name, model, scored, (self._clock() - began) * 1000)
        except StageError as error:
            outcome, code, sent = error.reason, error.code, error.sent
            queue_ms, room_ms = error.queue_ms, error.room_ms
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
                took_ms = elapsed_s * 1000
                done = Round(name, model, sent, 0, 0, 0, outcome, code, took_ms, queue_ms=queue_ms, room_ms=room_ms)
            run.rounds.append(done)
        run.excluded |= {indices[position] for position in scored.excluded}
        return {index: score for index, score in by_index.items() if score is not None}


def _done(name: StageName, model: str, scored: StageScores, elapsed_ms: float) -> Round:
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
        top=max((score for score in scored.scores if score is not None), default=None),
    )
