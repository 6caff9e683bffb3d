"""One request from candidates to ranking, case by case."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from cascade.decision import RankedCandidate
from cascade.errors import (
    NotAnswered,
    RequestFault,
    StageError,
    StageOverloaded,
    StageRefused,
    StageTimeout,
    StageUnreachable,
)
from cascade.guard.deadline import Deadline
from cascade.pipeline import Pipeline
from cascade.testing.clock import run_virtual
from cascade.testing.stages import ScriptedStage
from cascade.text import Text
from cascade.types import Dialect, Request, ScoreSpace, StageName, StageScores
from tests.scenario import STAGE_ERRORS, Scenario, Script, play

_ANIMALS = ("ant", "bee", "cat", "dog", "eel")
_SMALL = Script({"ant": -3.0, "bee": -1.0, "cat": 4.0, "dog": 2.0, "eel": 3.0})
_LARGE = Script({"ant": 0.5, "bee": 2.5, "cat": -2.0, "dog": 1.5, "eel": 6.0})


def test_a_cascade_answers_with_the_large_block_over_the_small_order() -> None:
    """The top two of the small order are reordered by the large stage; the rest stays in the small order."""
    played = play(Scenario(_ANIMALS, _SMALL, _LARGE, top_m=2))
    assert [(item.index, item.id, item.stage) for item in played.ranking.results] == [
        (4, "d4", "large"),
        (2, "d2", "large"),
        (3, "d3", "small"),
        (1, "d1", "small"),
        (0, "d0", "small"),
    ]


def test_a_decision_tells_all_that_was_decided() -> None:
    """Depth, escalated set, rounds with their costs, and changes of place are in the decision."""
    scenario = Scenario(
        ("ant", "bee", "", "cat", "dog", "eel"), _SMALL, replace(_LARGE, delay_ms=5.0), top_m=2, top_n=3
    )
    small = replace(_SMALL, refused=frozenset({"bee"}), delay_ms=7.0)
    decision = play(replace(scenario, small=small, depth=5)).ranking.decision
    assert decision.id == "id-1"
    assert decision.dialect is Dialect.NATIVE
    assert (decision.release, decision.tenant, decision.query_hash) == ("r1", None, "hash")
    assert (decision.candidates, decision.top_n, decision.depth) == (6, 3, 5)
    assert decision.escalated == (3, 4)
    assert decision.stage is StageName.LARGE
    assert decision.excluded == 2
    assert decision.rank_changes_at_5 == 5
    assert decision.deadline_ms == 100.0
    assert decision.total_ms == pytest.approx(12.0)
    assert decision.own_ms == pytest.approx(0.0, abs=1e-6)
    told = [(item.stage, item.model, item.sent, item.scored, item.blank, item.refused) for item in decision.rounds]
    assert told == [("small", "scripted", 4, 3, 1, 1), ("large", "scripted", 2, 2, 0, 0)]
    assert [item.elapsed_ms for item in decision.rounds] == [pytest.approx(7.0), pytest.approx(5.0)]
    assert [item.cost.tokens if item.cost else None for item in decision.rounds] == [12, 6]


def test_the_dialect_and_the_tenant_of_a_request_are_in_its_decision() -> None:
    """The decision names whose request it was and in what format it came."""
    request = replace(Scenario(("ant",)).request(), tenant="acme", dialect=Dialect.TEI)

    async def answer() -> tuple[Dialect, str | None]:
        decision = (await _pipeline(Scenario(("ant",))).rerank(request)).decision
        return decision.dialect, decision.tenant

    assert run_virtual(answer()) == (Dialect.TEI, "acme")


def test_the_hash_of_the_query_is_made_from_the_query() -> None:
    """The hash function gets the query itself and its result is recorded."""
    played = play(Scenario(("ant",), query="which animal"), hash_query=lambda query: f"{len(query)}")
    assert played.ranking.decision.query_hash == "12"


def test_large_gets_the_escalated_texts_in_first_stage_order() -> None:
    """What is sent to the large stage does not depend on the small stage's order of the same set."""
    played = play(Scenario(_ANIMALS, _SMALL, _LARGE, top_m=3))
    assert played.stages[StageName.LARGE].calls == [["cat", "dog", "eel"]]
    assert played.ranking.decision.escalated == (2, 4, 3)


def test_each_call_is_named_for_its_decision_and_stage() -> None:
    """The call id of a round begins with the decision's id."""

    @dataclass(slots=True)
    class Named(ScriptedStage):
        names: list[str] = field(default_factory=list)

        async def score(
            self,
            query: Text,
            documents: Sequence[Text],
            *,
            deadline: Deadline,
            call_id: str,
            instruction: Text | None = None,
        ) -> StageScores:
            self.names.append(call_id)
            return await ScriptedStage.score(self, query, documents, deadline=deadline, call_id=call_id)

    small, large = (Named(lambda query, text: 0.0) for _ in range(2))
    play(Scenario(_ANIMALS), stages={StageName.SMALL: small, StageName.LARGE: large})
    assert (small.names, large.names) == (["id-1-small"], ["id-1-large"])


@pytest.mark.parametrize(
    ("small", "large", "stage", "order"),
    [
        (None, None, StageName.RETRIEVAL, [0, 1, 2, 3, 4]),
        (_SMALL, None, StageName.SMALL, [2, 4, 3, 1, 0]),
        (None, _LARGE, StageName.LARGE, [1, 0, 2, 3, 4]),
    ],
)
def test_a_stage_may_be_absent(small: Script | None, large: Script | None, stage: StageName, order: list[int]) -> None:
    """Without a small stage the first candidates are escalated; without either the order stays; nothing is degraded."""
    played = play(Scenario(_ANIMALS, small, large, top_m=2))
    assert played.order == order
    assert played.ranking.decision.stage is stage
    assert played.ranking.decision.degraded == ()


def test_candidates_beyond_depth_and_limit_keep_first_stage_order() -> None:
    """Only the first candidates are sent, as many as depth and limit allow."""
    played = play(Scenario(_ANIMALS, _SMALL, None, depth=4, max_candidates=3))
    assert played.stages[StageName.SMALL].calls == [["ant", "bee", "cat"]]
    assert played.order == [2, 1, 0, 3, 4]


def test_documents_that_the_small_stage_left_out_are_not_escalated() -> None:
    """The escalated set comes from what the small stage scored."""
    small = replace(_SMALL, refused=frozenset({"cat", "eel"}))
    played = play(Scenario(_ANIMALS, small, _LARGE, top_m=2))
    assert played.ranking.decision.escalated == (3, 1)
    assert played.order == [1, 3, 0, 2, 4]


def test_documents_left_out_by_either_stage_are_counted_by_candidate() -> None:
    """A blank first candidate and another that the large stage refused are two, whatever their places in a call."""
    played = play(Scenario(("", "ant", "bee"), _SMALL, replace(_LARGE, refused=frozenset({"ant"}))))
    assert played.ranking.decision.excluded == 2
    assert [(item.index, item.stage) for item in played.ranking.results] == [
        (2, "large"),
        (1, "small"),
        (0, "retrieval"),
    ]


def test_where_the_small_stage_left_out_everything_the_first_candidates_are_escalated() -> None:
    """A small stage that refused every document leaves first-stage order as the best known, undegraded."""
    played = play(Scenario(_ANIMALS, replace(_SMALL, refused=frozenset(_ANIMALS)), _LARGE, top_m=2))
    assert played.ranking.decision.escalated == (0, 1)
    assert played.ranking.decision.degraded == ()


def test_equal_texts_keep_their_own_places() -> None:
    """Duplicates are told apart by index, and tie in first-stage order."""
    assert play(Scenario(("bee", "ant", "bee", "ant", "bee"), _LARGE, None)).order == [0, 2, 4, 1, 3]


def test_a_blank_query_is_sent_to_no_stage() -> None:
    """There is nothing to score against: the answer is in first-stage order, and no round is made."""
    played = play(Scenario(_ANIMALS, _SMALL, _LARGE, query=" \n"))
    assert [stage.calls for stage in played.stages.values()] == [[], []]
    assert played.order == [0, 1, 2, 3, 4]
    assert played.ranking.decision.rounds == ()


@pytest.mark.parametrize("fails", STAGE_ERRORS)
def test_a1_both_stages_failing_gives_first_stage_order_and_the_reason(fails: type[StageError]) -> None:
    """Large and small both fail: the order that came goes back, once with the reason, and no fault is counted."""
    played = play(Scenario(_ANIMALS, replace(_SMALL, fails=fails), replace(_LARGE, fails=fails)))
    assert played.order == [0, 1, 2, 3, 4]
    assert played.ranking.decision.degraded == (fails.reason,)
    assert [item.outcome for item in played.ranking.decision.rounds] == [fails.reason, fails.reason]
    assert played.faults == []


def test_a1_two_stages_failing_in_two_ways_give_both_reasons_in_order() -> None:
    """Each reason is told, in the order in which the rounds failed."""
    scenario = Scenario(_ANIMALS, replace(_SMALL, fails=StageUnreachable), replace(_LARGE, fails=StageOverloaded))
    assert play(scenario).ranking.decision.degraded == ("stage_unreachable", "stage_overloaded")


def test_a2_every_attempt_is_in_the_decision() -> None:
    """A failed small round is followed by a large one over the first candidates, and both are recorded."""
    played = play(Scenario(_ANIMALS, replace(_SMALL, fails=StageRefused), _LARGE, top_m=3))
    assert played.order == [1, 0, 2, 3, 4]
    told = [(item.stage, item.outcome, item.code, item.sent) for item in played.ranking.decision.rounds]
    assert told == [("small", "stage_refused", "scripted", 5), ("large", "ok", "", 3)]


def test_a2_a_failing_large_stage_leaves_the_small_order() -> None:
    """The best complete order so far is answered."""
    played = play(Scenario(_ANIMALS, _SMALL, replace(_LARGE, fails=StageOverloaded)))
    assert played.order == [2, 4, 3, 1, 0]
    assert played.ranking.decision.stage is StageName.SMALL
    assert played.ranking.decision.degraded == ("stage_overloaded",)


@pytest.mark.parametrize("top_n", [1, 3, 5, 50])
def test_a5_a_fallback_is_the_head_of_the_order_that_came(top_n: int) -> None:
    """Nothing is re-fused, dropped or doubled, and nothing claims to be reranked."""
    scenario = Scenario(_ANIMALS, Script(fails=StageUnreachable), Script(fails=StageUnreachable), top_n=top_n)
    results = play(scenario).ranking.results
    assert [item.index for item in results] == list(range(min(top_n, 5)))
    assert {item.stage for item in results} == {StageName.RETRIEVAL}
    assert [item.score for item in results] == [
        pytest.approx(score, abs=1e-7) for score in (1.0, 0.8, 0.6, 0.4, 0.2)[:top_n]
    ]


def test_a6_a_timeout_never_shortens_the_answer() -> None:
    """A stage that does not answer in time takes no candidate with it."""
    scenario = Scenario(_ANIMALS, Script(delay_ms=1e6), Script(delay_ms=1e6), top_n=4)
    assert len(play(scenario).ranking.results) == 4


def test_a_round_that_timed_out_as_it_waited_tells_how_long() -> None:
    """The decision has what the stage told of its waits, and of one that was in no queue nothing."""
    waited = StageTimeout("large", "deadline", elapsed_ms=40.0, budget_ms=40.0, queue_ms=35.0, room_ms=5.0)
    rounds = [
        play(Scenario(_ANIMALS, _SMALL, replace(_LARGE, fails=fails))).ranking.decision.rounds[-1]
        for fails in (waited, StageTimeout)
    ]
    assert [(each.queue_ms, each.room_ms) for each in rounds] == [(35.0, 5.0), (None, None)]


def test_a7_a_stage_that_sleeps_past_the_budget_does_not_hold_the_answer() -> None:
    """With 100 ms to spend and a stage that takes 5 s, the answer is there when the reserve begins."""
    scenario = Scenario(_ANIMALS, None, Script(delay_ms=5000.0), large_ms=1000.0)
    played = play(scenario)
    assert played.took_ms == pytest.approx(90.0)
    assert played.ranking.decision.degraded == ("stage_timeout",)
    assert played.order == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    "fault", [ValueError("x"), KeyError("x"), OSError("x"), RecursionError("x"), ExceptionGroup("x", [ValueError("x")])]
)
def test_a8_an_unexpected_exception_is_answered_and_counted(fault: Exception) -> None:
    """A fault of ours in the large stage costs its block, never the small order or the answer."""
    played = play(Scenario(_ANIMALS, _SMALL, replace(_LARGE, fails=fault)))
    assert played.order == [2, 4, 3, 1, 0]
    assert played.ranking.decision.degraded == ("internal_error",)
    assert list(played.faults) == [fault]
    told = [(item.stage, item.outcome, item.code) for item in played.ranking.decision.rounds]
    assert told == [("small", "ok", ""), ("large", "internal_error", "fault")]


def test_a8_a_fault_in_the_small_stage_leaves_the_large_stage_to_answer() -> None:
    """A fault of ours in the small stage costs its round only: the large stage ranks the head of first-stage order."""
    played = play(Scenario(_ANIMALS, replace(_SMALL, fails=ValueError("x")), _LARGE))
    assert played.ranking.decision.stage == "large"
    assert played.ranking.decision.degraded == ("internal_error",)
    assert [item.outcome for item in played.ranking.decision.rounds] == ["internal_error", "ok"]


def test_a_document_that_the_small_stage_refused_may_still_be_escalated() -> None:
    """Where the head is not full of scored documents, unscored ones follow in first-stage order."""
    small = Script({"bee": 1.0}, refused=frozenset({"ant"}))
    large = Script({"ant": 5.0, "bee": 1.0})
    played = play(Scenario(("ant", "bee"), small, large, top_m=2))
    assert played.order == [0, 1]
    assert {item.stage for item in played.ranking.results} == {StageName.LARGE}


def test_a_caller_in_a_hurry_leaves_the_large_stage_its_share() -> None:
    """At half the release's time the small stage gives up at half its budget, and the large stage still answers."""
    slow = Script(delay_ms=1e6)
    played = play(Scenario(_ANIMALS, slow, _LARGE, deadline_ms=55.0))
    small, large = played.ranking.decision.rounds
    assert small.elapsed_ms == pytest.approx(20.0)
    assert (small.outcome, large.outcome) == ("stage_timeout", "ok")
    assert played.ranking.decision.stage == "large"


@pytest.mark.parametrize("changes", [{"fail_closed": True}, {"fallback": "error"}])
def test_fail_closed_answers_with_an_error_in_place_of_a_degraded_order(changes: dict[str, Any]) -> None:
    """Who asks for it, caller or release, gets NOT_ANSWERED with the reason and a time to come again."""
    scenario = replace(Scenario(_ANIMALS, _SMALL, replace(_LARGE, fails=StageOverloaded)), **changes)
    with pytest.raises(NotAnswered, match="answer: stage_overloaded") as raised:
        play(scenario)
    assert (
        raised.value.decision == play(replace(scenario, fail_closed=False, fallback="original-order")).ranking.decision
    )
    assert raised.value.fault is RequestFault.NOT_ANSWERED
    assert raised.value.retry_after_s == 1


def test_fail_closed_also_covers_a_fault_of_ours() -> None:
    """An unexpected exception is a degraded answer like any other."""
    with pytest.raises(NotAnswered, match="internal_error"):
        play(Scenario(_ANIMALS, replace(_SMALL, fails=ValueError("x")), fail_closed=True))


@pytest.mark.parametrize(("deadline_ms", "expected_ms"), [(None, 100.0), (30.0, 30.0), (250.0, 250.0)])
def test_the_callers_deadline_takes_the_place_of_the_releases(deadline_ms: float | None, expected_ms: float) -> None:
    """A caller may ask for less time than the release gives, or for more."""
    scenario = Scenario(_ANIMALS, None, Script(delay_ms=5000.0), large_ms=1000.0, deadline_ms=deadline_ms)
    played = play(scenario)
    assert played.ranking.decision.deadline_ms == expected_ms
    assert played.took_ms == pytest.approx(expected_ms - 10.0)


def test_time_before_the_pipeline_counts_against_the_deadline() -> None:
    """The deadline runs from the arrival of the request, not from when its body had been read."""
    scenario = Scenario(_ANIMALS, None, Script(delay_ms=5000.0), large_ms=1000.0)
    played = play(scenario, waited_ms=25.0)
    assert played.took_ms == pytest.approx(90.0)
    assert played.ranking.decision.total_ms == pytest.approx(90.0)
    assert played.ranking.decision.own_ms == pytest.approx(25.0)
    assert played.ranking.decision.rounds[0].elapsed_ms == pytest.approx(65.0)


def test_no_call_leaves_when_only_the_reserve_is_left() -> None:
    """A deadline within the reserve is answered at once, and the rounds say that nothing was sent."""
    played = play(Scenario(_ANIMALS, _SMALL, _LARGE, deadline_ms=10.0))
    assert [stage.calls for stage in played.stages.values()] == [[], []]
    assert played.took_ms == pytest.approx(0.0)
    assert played.ranking.decision.degraded == ("deadline_too_short",)
    told = [(item.stage, item.outcome, item.code, item.sent) for item in played.ranking.decision.rounds]
    assert told == [
        ("small", "deadline_too_short", "not_sent", 0),
        ("large", "deadline_too_short", "not_sent", 0),
    ]


def test_a_small_stage_out_of_its_budget_leaves_time_for_the_large_one() -> None:
    """The small stage is cut at its own budget, and the large one scores the first candidates."""
    played = play(Scenario(_ANIMALS, Script(delay_ms=41.0), replace(_LARGE, delay_ms=49.0), top_m=2))
    assert played.order == [1, 0, 2, 3, 4]
    assert played.took_ms == pytest.approx(89.0)
    assert played.ranking.decision.degraded == ("stage_timeout",)


@dataclass(slots=True)
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
        try:
            await asyncio.sleep(1e6)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        raise AssertionError


@pytest.mark.parametrize(("reserve_ms", "at_ms"), [(10.0, 95.0), (0.0, 100.0)])
def test_late_work_is_cancelled_half_the_reserve_before_the_deadline(reserve_ms: float, at_ms: float) -> None:
    """A stage that ignores its deadline is cancelled; the round is recorded as a timeout, the answer in time."""
    stages = {StageName.SMALL: _SMALL.stage(), StageName.LARGE: _NeverEnding(lambda query, text: 0.0)}
    played = play(Scenario(_ANIMALS, _SMALL, reserve_ms=reserve_ms), stages=stages)
    assert played.took_ms == pytest.approx(at_ms)
    assert stages[StageName.LARGE].cancelled == 1
    assert played.left_behind == 0
    assert played.order == [2, 4, 3, 1, 0]
    assert played.ranking.decision.degraded == ("stage_timeout",)
    last = played.ranking.decision.rounds[-1]
    assert (last.stage, last.outcome, last.code, last.sent) == ("large", "stage_timeout", "cancelled", 5)
    assert last.elapsed_ms == pytest.approx(at_ms)


def _pipeline(scenario: Scenario, **stages: ScriptedStage) -> Pipeline:
    """Return a pipeline of a scenario on the running loop's clock; ``stages`` stand in for scripted ones."""
    scripts = {StageName.SMALL: scenario.small, StageName.LARGE: scenario.large}
    used = {name: stages.get(name, script.stage()) for name, script in scripts.items() if script is not None}

    def never(error: BaseException) -> None:
        raise AssertionError

    return Pipeline(
        scenario.release(),
        used,
        clock=asyncio.get_running_loop().time,
        new_id=lambda: "id-1",
        hash_query=lambda query: "hash",
        count_fault=never,
    )


def test_c1_a_caller_that_goes_away_cancels_the_stage() -> None:
    """Cancelling the request cancels the call under way; it is neither swallowed nor counted as a fault."""

    async def leave() -> tuple[float, int]:
        loop = asyncio.get_running_loop()
        stage = _NeverEnding(lambda query, text: 0.0)
        scenario = Scenario(_ANIMALS, Script(), Script())
        task = asyncio.create_task(_pipeline(scenario, small=stage).rerank(scenario.request()))
        await asyncio.sleep(0.02)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return loop.time(), stage.cancelled

    now, cancelled = run_virtual(leave())
    assert now == pytest.approx(0.02)
    assert cancelled == 1


def test_requests_under_way_together_do_not_see_each_other() -> None:
    """Many requests at once on one pipeline are each answered from their own candidates."""

    async def together() -> list[list[int]]:
        scenario = Scenario(_ANIMALS, replace(_SMALL, delay_ms=5.0), replace(_LARGE, delay_ms=5.0))
        pipeline = _pipeline(scenario)
        requests = [replace(scenario, texts=_ANIMALS[: count + 1]).request() for count in range(5)]
        rankings = await asyncio.gather(*(pipeline.rerank(request) for request in requests))
        return [[item.index for item in ranking.results] for ranking in rankings]

    assert run_virtual(together()) == [[0], [1, 0], [1, 0, 2], [1, 3, 0, 2], [4, 1, 3, 0, 2]]


def test_e5_outward_scores_follow_the_declared_space_of_the_answering_stage() -> None:
    """A logit is mapped by the sigmoid once, a cosine linearly, a probability not at all."""
    scores = {"ant": 0.5, "bee": 0.25}
    expected = {
        ScoreSpace.LOGIT: [0.6224593312018546, 0.5621765008857981],
        ScoreSpace.PROBABILITY: [0.5, 0.25],
        ScoreSpace.COSINE: [0.75, 0.625],
    }
    for space, outward in expected.items():
        results = play(Scenario(("ant", "bee"), Script(scores, space=space), None)).ranking.results
        assert [item.score for item in results] == [pytest.approx(score, rel=1e-12) for score in outward]


def test_e5_each_stage_is_mapped_by_its_own_space() -> None:
    """Where a logit is above a cosine in the answer, neither goes through the other's map."""
    small = Script({"ant": 0.5, "bee": -0.5}, space=ScoreSpace.COSINE)
    large = Script({"ant": 2.0}, space=ScoreSpace.LOGIT)
    results = play(Scenario(("ant", "bee"), small, large, top_m=1)).ranking.results
    assert [item.score for item in results] == [pytest.approx(0.8807970779778823), 0.25]


def test_a9_a_stage_error_names_stage_code_elapsed_and_budget() -> None:
    """The message of a stage error is never empty and holds the four facts."""
    error = StageTimeout("large", "deadline", elapsed_ms=49.6, budget_ms=50.0)
    assert str(error) == "large: deadline after 50 ms of 50 ms"
    assert (error.stage, error.code, error.elapsed_ms, error.budget_ms) == ("large", "deadline", 49.6, 50.0)


def test_a_ranked_candidate_without_an_id_stays_without() -> None:
    """Ids are the caller's: none is made up."""

    async def answer() -> tuple[RankedCandidate, ...]:
        scenario = Scenario(("ant",))
        request = scenario.request()
        bare = Request(request.query, (replace(request.candidates[0], id=None),))
        return (await _pipeline(scenario).rerank(bare)).results

    assert [item.id for item in run_virtual(answer())] == [None]
