"""Mode observe: the large stage answers as before, the small one scores beside the answer."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings

from cascade.calibration.artefact import PlattMap
from cascade.calibration.calibrated import Calibration
from cascade.decision import Action, Ranking
from cascade.errors import NotAnswered, StageOverloaded
from cascade.guard.beside import Beside
from cascade.guard.deadline import Deadline
from cascade.policy.release import Release, parse_release
from cascade.telemetry.records import Decided
from cascade.testing.calibration import scripted_artefact
from cascade.testing.clock import run_virtual
from cascade.testing.stages import ScriptedStage
from cascade.text import Text
from cascade.types import StageName, StageScores
from tests.recorded import Kept, recorded_pipeline
from tests.scenario import Scenario, Script, play, release_data, scenarios

_ANIMALS = ("ant", "bee", "cat", "dog", "eel")
_SMALL = Script({"ant": -3.0, "bee": -1.0, "cat": 4.0, "dog": 2.0, "eel": 3.0})
_LARGE = Script({"ant": 0.5, "bee": 2.5, "cat": -2.0, "dog": 1.5, "eel": 6.0})
_SCENARIO = Scenario(_ANIMALS, _SMALL, _LARGE)


def _observing(scenario: Scenario, **changes: Any) -> Release:
    """Return a scenario's release in mode observe; both its stages must be there."""
    budgets = scenario.release().budgets.model_dump()
    limits = {"max_candidates": scenario.max_candidates}
    data = release_data(mode="observe", budgets=budgets, limits=limits, fallback=scenario.fallback)
    return parse_release({**data, "depth": scenario.depth, **changes})


class _Observed:
    """A scenario answered in mode observe, with what came after the answer."""

    def __init__(
        self,
        scenario: Scenario = _SCENARIO,
        *,
        kept: Kept | None = None,
        beside: Beside | None = None,
        small: ScriptedStage | None = None,
        after_s: float = 10.0,
        calibration: Calibration | None = None,
        **changes: Any,
    ) -> None:
        assert scenario.small is not None
        assert scenario.large is not None
        self.stages = {StageName.SMALL: small or scenario.small.stage(), StageName.LARGE: scenario.large.stage()}
        self.kept = kept or Kept()
        self.faults: list[BaseException] = []
        self.recorded_at_answer = -1
        self.took_ms = -1.0
        self.left_behind = -1

        async def answer() -> Ranking | NotAnswered:
            loop = asyncio.get_running_loop()
            release = _observing(scenario, **changes)
            pipeline = recorded_pipeline(
                release, self.stages, self.kept, faults=self.faults, beside=beside, calibration=calibration
            )
            ended: Ranking | NotAnswered
            try:
                ended = await pipeline.rerank(scenario.request())
            except NotAnswered as refused:
                ended = refused
            self.took_ms = loop.time() * 1000
            self.recorded_at_answer = len(self.kept.decided)
            await asyncio.sleep(after_s)
            if beside is not None:
                await beside.aclose()
            self.left_behind = len(asyncio.all_tasks()) - 1
            return ended

        self.ended = run_virtual(answer())

    @property
    def ranking(self) -> Ranking:
        """Return the answer, where there was one."""
        assert isinstance(self.ended, Ranking)
        return self.ended

    @property
    def decided(self) -> Decided:
        """Return the one request that was recorded."""
        (only,) = self.kept.decided
        return only


def test_the_large_stage_scores_every_candidate_and_places_them_all() -> None:
    """Whatever depth and escalation say, the block is the whole list, in the large order."""
    observed = _Observed(depth=2, escalation="none")
    assert [item.index for item in observed.ranking.results] == [4, 1, 3, 0, 2]
    assert {item.stage for item in observed.ranking.results} == {StageName.LARGE}
    decision = observed.ranking.decision
    assert (decision.depth, decision.depth_reason, decision.action) == (5, "observe", Action.QUERY)
    assert decision.escalated == (0, 1, 2, 3, 4)
    assert [item.stage for item in decision.rounds] == [StageName.LARGE]
    assert decision.degraded == ()


def test_a_calibration_that_is_tried_changes_no_score() -> None:
    """Its maps of scores are for a release that decides by it."""
    artefact = scripted_artefact().model_copy(update={"score_maps": {"large": PlattMap(slope=0.1, intercept=-3.0)}})
    tried = _Observed(calibration=Calibration(artefact, "sha256:1"))
    assert tried.ranking.results == _Observed().ranking.results


def test_candidates_over_the_limit_keep_first_stage_order_and_neither_stage_scores_them() -> None:
    """The limit of candidates bounds both stages."""
    observed = _Observed(replace(_SCENARIO, max_candidates=3))
    assert [item.index for item in observed.ranking.results] == [1, 0, 2, 3, 4]
    assert [stage.calls for stage in observed.stages.values()] == [[["ant", "bee", "cat"]]] * 2


@settings(deadline=None, max_examples=150)
@given(scenarios())
def test_the_answer_is_that_of_the_large_stage_alone_to_the_millisecond(scenario: Scenario) -> None:
    """Order, scores, reasons, rounds and time are those of a release that always asks the large stage, whatever fails."""
    small, large = scenario.small or Script(), scenario.large or Script()
    most = scenario.max_candidates
    alone = replace(scenario, small=None, large=large, depth=most, top_m=most)
    expected = play(alone)
    observed = _Observed(replace(scenario, small=small, large=large), kept=(kept := Kept()))
    assert observed.ranking.results == expected.ranking.results
    assert observed.took_ms == expected.took_ms
    same = ("rounds", "degraded", "excluded", "stage", "total_ms", "own_ms", "depth", "escalated", "rank_changes_at_5")
    for name in same:
        assert getattr(observed.ranking.decision, name) == getattr(expected.ranking.decision, name), name
    assert observed.left_behind == 0
    assert len(kept.decided) == 1


def test_the_small_stage_begins_when_the_answer_is_made_and_is_recorded_with_it() -> None:
    """It takes longer than the deadline, and the answer does not wait; the record has both stages' scores."""
    scenario = replace(_SCENARIO, small=replace(_SMALL, delay_ms=39.0), large=replace(_LARGE, delay_ms=55.0))
    observed = _Observed(scenario)
    assert observed.took_ms == pytest.approx(55.0)
    assert observed.recorded_at_answer == 0
    decided = observed.decided
    assert decided.decision == observed.ranking.decision
    assert decided.small == {0: -3.0, 1: -1.0, 2: 4.0, 3: 2.0, 4: 3.0}
    assert decided.large == {0: 0.5, 1: 2.5, 2: -2.0, 3: 1.5, 4: 6.0}
    assert decided.beside is not None
    assert (decided.beside.stage, decided.beside.outcome, decided.beside.sent) == (StageName.SMALL, "ok", 5)
    assert decided.beside.elapsed_ms == pytest.approx(39.0)
    assert not decided.dropped


def test_what_either_stage_left_out_is_recorded() -> None:
    """Documents refused by the small stage beside the answer are no more in the answer's count."""
    scenario = replace(
        _SCENARIO,
        small=replace(_SMALL, refused=frozenset({"ant"})),
        large=replace(_LARGE, refused=frozenset({"dog"})),
    )
    observed = _Observed(scenario)
    assert observed.ranking.decision.excluded == 1
    assert observed.decided.excluded == {0, 3}
    assert set(observed.decided.small) == {1, 2, 3, 4}


@pytest.mark.parametrize("fails", [StageOverloaded, ValueError("a fault")])
def test_a_small_stage_that_fails_costs_its_scores_only(fails: Any) -> None:
    """The answer is whole and undegraded; the record says how the round ended."""
    observed = _Observed(replace(_SCENARIO, small=replace(_SMALL, fails=fails)))
    assert observed.ranking.decision.degraded == ()
    assert observed.decided.small == {}
    assert observed.decided.beside is not None
    assert observed.decided.beside.outcome in ("stage_overloaded", "internal_error")
    assert len(observed.faults) == isinstance(fails, ValueError)


def test_the_small_stage_has_its_own_time() -> None:
    """It is cut at small_ms after the answer, whatever is left of the deadline."""
    observed = _Observed(replace(_SCENARIO, small=replace(_SMALL, delay_ms=41.0)))
    assert observed.decided.beside is not None
    assert (observed.decided.beside.outcome, observed.decided.beside.code) == ("stage_timeout", "deadline")
    assert observed.decided.beside.elapsed_ms == pytest.approx(40.0)


class _NeverEnding(ScriptedStage):
    """Wait for ever, whatever the deadline."""

    async def score(
        self,
        query: Text,
        documents: Sequence[Text],
        *,
        deadline: Deadline,
        call_id: str,
        instruction: Text | None = None,
    ) -> StageScores:
        await asyncio.sleep(1e6)
        raise AssertionError


def test_a_small_stage_that_ignores_its_deadline_is_cancelled() -> None:
    """The round is recorded as a timeout and nothing stays behind."""
    observed = _Observed(small=_NeverEnding(lambda query, text: 0.0))
    assert observed.decided.beside is not None
    assert (observed.decided.beside.outcome, observed.decided.beside.code) == ("stage_timeout", "cancelled")
    assert observed.decided.beside.elapsed_ms == pytest.approx(45.0)
    assert observed.left_behind == 0


def test_at_a_stop_the_small_stage_is_cancelled_and_the_record_is_kept() -> None:
    """Closing cancels the round; what the large stage said is recorded all the same."""
    observed = _Observed(small=_NeverEnding(lambda query, text: 0.0), beside=Beside(1), after_s=0.01)
    assert observed.decided.large == {0: 0.5, 1: 2.5, 2: -2.0, 3: 1.5, 4: 6.0}
    assert observed.decided.beside is not None
    assert observed.decided.beside.code == "cancelled"
    assert observed.left_behind == 0


def test_without_room_beside_the_answers_the_small_stage_is_left_out() -> None:
    """The request is answered and recorded, and the record says that the small scores were dropped."""
    full = Beside(1)

    async def play_full() -> None:
        full.start(lambda: asyncio.sleep(1e6))

    kept = Kept()

    async def answer() -> Ranking:
        await play_full()
        stages = {StageName.SMALL: _SMALL.stage(), StageName.LARGE: _LARGE.stage()}
        pipeline = recorded_pipeline(_observing(_SCENARIO), stages, kept, faults=[], beside=full)
        ranking = await pipeline.rerank(_SCENARIO.request())
        await full.aclose()
        assert stages[StageName.SMALL].calls == []
        return ranking

    ranking = run_virtual(answer())
    assert [item.index for item in ranking.results] == [4, 1, 3, 0, 2]
    (decided,) = kept.decided
    assert decided.dropped
    assert (decided.beside, decided.small) == (None, {})
    assert decided.large == {0: 0.5, 1: 2.5, 2: -2.0, 3: 1.5, 4: 6.0}


def test_a_query_outside_the_sample_is_not_scored_by_the_small_stage() -> None:
    """What would not be kept is not computed."""
    observed = _Observed(kept=Kept(sampled=False))
    assert observed.stages[StageName.SMALL].calls == []
    assert observed.kept.decided == []


def test_a_failing_large_stage_is_answered_in_first_stage_order_with_its_reason() -> None:
    """The small stage is on no answer's path, so that there is no order of it to fall back to; it is recorded."""
    observed = _Observed(replace(_SCENARIO, large=replace(_LARGE, fails=StageOverloaded)))
    assert [item.index for item in observed.ranking.results] == [0, 1, 2, 3, 4]
    assert observed.ranking.decision.degraded == ("stage_overloaded",)
    assert observed.decided.large == {}
    assert set(observed.decided.small) == {0, 1, 2, 3, 4}


def test_a_request_that_got_an_error_in_place_of_a_degraded_answer_is_recorded() -> None:
    """It was decided, if not answered."""
    scenario = replace(_SCENARIO, large=replace(_LARGE, fails=StageOverloaded), fail_closed=True)
    observed = _Observed(scenario)
    assert isinstance(observed.ended, NotAnswered)
    assert observed.decided.decision == observed.ended.decision


def test_a_blank_query_is_recorded_and_scored_by_neither() -> None:
    """There is nothing to score against."""
    observed = _Observed(replace(_SCENARIO, query=" "))
    assert [stage.calls for stage in observed.stages.values()] == [[], []]
    assert (observed.decided.beside, observed.decided.dropped) == (None, False)


def test_a_recorder_that_fails_costs_no_answer() -> None:
    """The fault is counted, before the answer and beside it."""
    broken = _Observed(kept=Kept(fails=RuntimeError("disk")), beside=Beside(1))
    assert [item.index for item in broken.ranking.results] == [4, 1, 3, 0, 2]
    assert [type(fault) for fault in broken.faults] == [RuntimeError]
    blank = _Observed(replace(_SCENARIO, query=" "), kept=Kept(fails=RuntimeError("disk")))
    assert [item.index for item in blank.ranking.results] == [0, 1, 2, 3, 4]
    assert [type(fault) for fault in blank.faults] == [RuntimeError]


def test_in_mode_cascade_every_round_s_scores_are_recorded_at_the_answer() -> None:
    """The record has what each stage scored, and nothing is scored beside the answer."""
    kept = Kept()

    async def answer() -> Ranking:
        stages = {StageName.SMALL: _SMALL.stage(), StageName.LARGE: _LARGE.stage()}
        pipeline = recorded_pipeline(replace(_SCENARIO, top_m=2).release(), stages, kept, faults=[])
        ranking = await pipeline.rerank(_SCENARIO.request())
        assert len(asyncio.all_tasks()) == 1
        assert len(stages[StageName.SMALL].calls) == 1
        return ranking

    ranking = run_virtual(answer())
    (decided,) = kept.decided
    assert decided.decision == ranking.decision
    assert decided.small == {0: -3.0, 1: -1.0, 2: 4.0, 3: 2.0, 4: 3.0}
    assert decided.large == {2: -2.0, 4: 6.0}
    assert (decided.beside, decided.dropped) == (None, False)


def test_a_fault_of_ours_beside_the_answer_is_counted_and_recorded() -> None:
    """What happens before the round begins is no round, and the large scores are kept."""
    nameless: Any = None
    observed = _Observed(small=ScriptedStage(lambda query, text: 0.0, fingerprint=nameless))
    assert [type(fault) for fault in observed.faults] == [AttributeError]
    assert (observed.decided.beside, observed.decided.small, len(observed.decided.large)) == (None, {}, 5)
