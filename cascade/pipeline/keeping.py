"""What is kept of an answer, and in mode observe scored beside it for that."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from cascade.calibration.calibrated import Calibration
from cascade.decision import Decision, Ranking
from cascade.guard.beside import Beside
from cascade.guard.deadline import Clock, Deadline
from cascade.pipeline.rounds import Rounds
from cascade.pipeline.run import Run
from cascade.pipeline.tap import Tap
from cascade.policy.release import Release
from cascade.telemetry.records import Assignment, Decided, Recorder
from cascade.telemetry.spans import untraced
from cascade.types import StageName

__all__ = ["Keeping"]


@dataclass(frozen=True, slots=True)
class Keeping:
    """Hand decided requests of one release to a recorder, where there is one. It never costs an answer.

    In mode observe, ``beside`` bounds how many the small stage scores at a time for it; without one it scores none.
    ``tap`` is offered every answered request.
    """

    release: Release
    calibration: Calibration | None
    rounds: Rounds
    clock: Clock
    count_fault: Callable[[BaseException], None]
    recorder: Recorder | None
    beside: Beside | None
    tap: Tap

    def keep(self, run: Run, ranking: Ranking, assigned: Assignment) -> None:
        """Hand the decided request to the recorder; in mode observe once the small stage has scored it too."""
        with untraced():
            if (offer := self.tap.offer) is not None:
                try:
                    offer(run.request, ranking, assigned)
                except Exception as error:  # noqa: BLE001 - a boundary of its own: what is scored beside never costs an answer
                    self.count_fault(error)
            self._keep(run, ranking.decision, assigned)

    def _keep(self, run: Run, decision: Decision, assigned: Assignment) -> None:
        recorder = self.recorder
        if recorder is None or not recorder.wants(decision.query_hash):
            return
        decided = Decided(
            run.request,
            decision,
            self.release,
            self.calibration,
            run.small,
            run.large,
            frozenset(run.excluded),
            assigned=assigned,
        )
        if self.release.mode == "cascade" or not run.depth or self.beside is None:
            self._record(recorder, decided)
        elif not self.beside.start(lambda: self._score_beside(recorder, decided)):
            self._record(recorder, replace(decided, dropped=True))

    async def _score_beside(self, recorder: Recorder, decided: Decided) -> None:
        """Score an answered request with the small stage, in its own time, and have it recorded."""
        run = Run(decided.request, decided.decision.id)
        budgets = self.release.budgets
        deadline = Deadline.after_ms(budgets.small_ms + budgets.reserve_ms, self.clock)
        try:
            async with deadline.earlier_by_ms(budgets.reserve_ms / 2).timeout():
                within = range(decided.decision.depth)
                run.small = await self.rounds.score(run, StageName.SMALL, within, deadline, budgets.small_ms)
        except TimeoutError:  # a stage that ignored its deadline: the round tells of it
            pass
        except Exception as error:  # noqa: BLE001 - the boundary of a background task
            self.count_fault(error)
        finally:
            excluded = decided.excluded | run.excluded
            beside = run.rounds[-1] if run.rounds else None
            self._record(recorder, replace(decided, small=run.small, excluded=excluded, beside=beside))

    def _record(self, recorder: Recorder, decided: Decided) -> None:
        try:
            recorder.record(decided)
        except Exception as error:  # noqa: BLE001 - a boundary of its own: what is kept of an answer never costs it
            self.count_fault(error)
