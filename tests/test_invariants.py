"""The promises of the pipeline, each checked over arbitrary requests, stages and budgets."""

from __future__ import annotations

import asyncio
import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cascade.decision import DegradedReason, Ranking
from cascade.errors import ConfigError, RequestError, StageError
from cascade.guard.deadline import Deadline
from cascade.pipeline import Pipeline
from cascade.policy.merge import logit
from cascade.policy.release import parse_release
from cascade.telemetry.logs import decision_record, get_logger, log_decision
from cascade.telemetry.metrics import Metrics
from cascade.testing.clock import run_virtual
from cascade.testing.stages import ScriptedStage
from cascade.text import Text
from cascade.types import StageCost, StageName, StageScores
from tests.escalated import CALIBRATION, REORDERING, Escalated, Query, escalate, rule
from tests.scenario import STAGE_ERRORS, Played, Scenario, Script, expected_order, play, release_data, scenarios
from tests.telemetry.captured import captured_log

_PROPERTY = settings(deadline=None, max_examples=150)
_MOMENT_MS = 1e-6
"""What adding floats may be off by."""


def _counted(played: Played, scenario: Scenario, name: StageName) -> dict[int, float]:
    """Return the scores that a stage's round must have put in: all of it, or nothing."""
    decision = played.ranking.decision
    script = scenario.small if name is StageName.SMALL else scenario.large
    ok = any(item.stage is name and item.outcome == "ok" for item in decision.rounds)
    if script is None or not ok:
        return {}
    indices = range(decision.depth) if name is StageName.SMALL else sorted(decision.escalated)
    return script.scores_of(scenario.texts, indices)


def _small_ms(scenario: Scenario) -> float:
    """Tell the small stage's time: in a hurry it leaves a large stage that follows its share."""
    depth = min(scenario.depth, scenario.max_candidates, len(scenario.texts))
    if scenario.large is None or not scenario.top_m or not depth:
        return scenario.small_ms
    planned, usable = scenario.total_ms - scenario.reserve_ms, scenario.asked_ms - scenario.reserve_ms
    return scenario.small_ms * min(1.0, max(0.0, usable) / planned)


def _expected_outcomes(scenario: Scenario) -> list[tuple[StageName, DegradedReason | None]]:
    """Tell from delays and budgets alone how each planned round ends, None for well."""
    ends = scenario.asked_ms - scenario.reserve_ms
    depth = min(scenario.depth, scenario.max_candidates, len(scenario.texts))
    now = 0.0
    told: list[tuple[StageName, DegradedReason | None]] = []
    head: Sequence[int] = range(depth)
    for name, script, budget in (
        (StageName.SMALL, scenario.small, _small_ms(scenario)),
        (StageName.LARGE, scenario.large, scenario.large_ms),
    ):
        to_score = depth if name is StageName.SMALL else len(head[: scenario.top_m])
        if script is None or not to_score:
            continue
        limit = min(now + budget, ends)
        if limit <= now:
            told.append((name, DegradedReason.DEADLINE_TOO_SHORT))
            continue
        if script.delay_ms > limit - now:
            told.append((name, DegradedReason.STAGE_TIMEOUT))
            now = limit
            continue
        now += script.delay_ms
        if isinstance(script.fails, Exception):
            told.append((name, DegradedReason.INTERNAL_ERROR))
            continue
        told.append((name, script.fails.reason if script.fails is not None else None))
        if script.fails is None and name is StageName.SMALL:
            scored = script.scores_of(scenario.texts, range(depth))
            head = [*sorted(scored, key=lambda index: -scored[index]), *(i for i in range(depth) if i not in scored)]
    return told


@_PROPERTY
@given(scenarios())
def test_inv1_the_answer_is_a_whole_permutation_cut_to_top_n(scenario: Scenario) -> None:
    """Every request is answered with each candidate at most once, by index, as many as were asked for."""
    played = play(scenario)
    count = len(scenario.texts)
    wanted = count if scenario.top_n is None else min(scenario.top_n, count)
    assert len(played.order) == played.ranking.decision.top_n == wanted
    assert len(set(played.order)) == wanted
    assert set(played.order) <= set(range(count))
    assert [item.id for item in played.ranking.results] == [f"d{index}" for index in played.order]


@_PROPERTY
@given(scenarios())
def test_inv1_a_cut_answer_is_the_head_of_the_whole_answer(scenario: Scenario) -> None:
    """``top_n`` cuts the order and changes nothing else."""
    cut, whole = play(scenario).ranking, play(replace(scenario, top_n=None)).ranking
    assert cut.results == whole.results[: len(cut.results)]
    assert replace(cut.decision, top_n=0) == replace(whole.decision, top_n=0)


@_PROPERTY
@given(scenarios(whole=True))
def test_inv2_a_round_counts_whole_or_not_at_all(scenario: Scenario) -> None:
    """A stage places all that it scored, or nothing; a blank or refused document never counts as scored."""
    played = play(scenario)
    large = _counted(played, scenario, StageName.LARGE)
    small = _counted(played, scenario, StageName.SMALL)
    placed = {name: {i.index for i in played.ranking.results if i.stage is name} for name in StageName}
    assert placed[StageName.LARGE] == set(large)
    assert placed[StageName.SMALL] == set(small) - set(large)
    for item in played.ranking.decision.rounds:
        kept = large if item.stage is StageName.LARGE else small
        assert item.scored == len(kept)
        if item.outcome == "ok":
            asked = played.ranking.decision.depth
            asked = len(played.ranking.decision.escalated) if item.stage is StageName.LARGE else asked
            assert item.scored + item.blank + item.refused == asked
            assert item.sent == item.scored + item.refused


@_PROPERTY
@given(scenarios())
def test_inv2_excluded_documents_are_counted_once(scenario: Scenario) -> None:
    """A document that any stage left out counts once, whichever stages left it out."""
    played = play(scenario)
    decision = played.ranking.decision
    left_out: set[int] = set()
    for item in decision.rounds:
        if item.outcome == "ok":
            asked = range(decision.depth) if item.stage is StageName.SMALL else decision.escalated
            left_out |= set(asked) - set(_counted(played, scenario, item.stage))
    assert decision.excluded == len(left_out)


@pytest.mark.parametrize("surplus", [-1, 1])
def test_inv2_a_stage_that_answers_a_wrong_number_of_scores_counts_nothing(surplus: int) -> None:
    """A round with a score too many or too few is a fault: it is counted, answered, and places nothing."""

    @dataclass(slots=True)
    class Miscounting(ScriptedStage):
        async def score(
            self,
            query: Text,
            documents: Sequence[Text],
            *,
            deadline: Deadline,
            call_id: str,
            instruction: Text | None = None,
        ) -> StageScores:
            cost = StageCost(1, 1, tokens_estimated=True, truncated=0)
            return StageScores((1.0,) * (len(documents) + surplus), {}, cost)

    stages = {StageName.SMALL: Script().stage(), StageName.LARGE: Miscounting(lambda query, text: 0.0)}
    played = play(Scenario(("ant", "bee", "cat"), small=Script({"cat": 1.0})), stages=stages)
    assert played.ranking.decision.degraded == (DegradedReason.INTERNAL_ERROR,)
    assert [(item.stage, item.outcome) for item in played.ranking.decision.rounds] == [
        ("small", "ok"),
        ("large", "internal_error"),
    ]
    assert played.ranking.decision.stage is StageName.SMALL
    assert [type(fault) for fault in played.faults] == [ValueError]


@_PROPERTY
@given(scenarios())
def test_inv3_the_large_block_then_the_small_order_then_first_stage_order(scenario: Scenario) -> None:
    """The order is the large stage's block, the small stage's rest, and the tail as it came."""
    played = play(scenario)
    small = _counted(played, scenario, StageName.SMALL)
    large = _counted(played, scenario, StageName.LARGE)
    assert played.order == expected_order(scenario, small, large)


@_PROPERTY
@given(scenarios(), st.sampled_from((0.125, 8.0, 1024.0)))
def test_inv3_scores_of_two_models_are_never_compared(scenario: Scenario, factor: float) -> None:
    """Stretching one stage's raw scores, which keeps its own order, changes no order at all."""
    before = play(scenario)
    for name in ("small", "large"):
        script: Script | None = getattr(scenario, name)
        if script is not None:
            stretched = replace(script, scores={text: score * factor for text, score in script.scores.items()})
            changes: dict[str, Any] = {name: stretched}
            after = play(replace(scenario, **changes))
            assert after.order == before.order
            assert after.ranking.decision == before.ranking.decision


@_PROPERTY
@given(scenarios())
def test_inv4_an_answer_is_degraded_exactly_when_a_planned_round_did_not_count(scenario: Scenario) -> None:
    """The reasons are those of the rounds that failed, from the closed list, and none where all went as planned."""
    decision = play(scenario).ranking.decision
    expected = _expected_outcomes(scenario)
    told = [(item.stage, None if item.outcome == "ok" else DegradedReason(item.outcome)) for item in decision.rounds]
    at_the_end = {DegradedReason.DEADLINE_TOO_SHORT, DegradedReason.STAGE_TIMEOUT}
    for (stage, reason), (expected_stage, expected_reason) in zip(told, expected, strict=False):
        assert stage == expected_stage
        # A round that begins at the very end of the time has none left, or what adding floats leaves.
        assert reason == expected_reason or {reason, expected_reason} == at_the_end
    if scenario.reserve_ms:
        assert len(told) == len(expected)
    else:  # with nothing in reserve, a round cut at the deadline may be the last that there is time to tell of
        assert len(told) in (len(expected), len(expected) - 1)
    assert bool(decision.degraded) == any(reason is not None for _, reason in expected)
    assert decision.degraded == tuple(dict.fromkeys(reason for _, reason in told if reason is not None))


@_PROPERTY
@given(scenarios(healthy=True))
def test_inv4_an_answer_is_never_degraded_when_all_went_as_planned(scenario: Scenario) -> None:
    """Absent stages, depth 0, top m 0, blank and refused documents are no degradation."""
    played = play(scenario)
    assert played.ranking.decision.degraded == ()
    assert played.faults == []


@_PROPERTY
@given(scenarios())
def test_inv4_only_faults_of_ours_are_counted_as_faults(scenario: Scenario) -> None:
    """An exception that no stage may raise is counted once for the round it ended; a stage error never is."""
    played = play(scenario)
    ended_by_fault = [item for item in played.ranking.decision.rounds if item.outcome == DegradedReason.INTERNAL_ERROR]
    assert len(played.faults) == len(ended_by_fault)
    assert bool(ended_by_fault) == (DegradedReason.INTERNAL_ERROR in played.ranking.decision.degraded)
    assert not any(isinstance(fault, StageError) for fault in played.faults)


@dataclass(slots=True)
class _Stubborn(ScriptedStage):
    """Pay no heed to the deadline it is given, and note it."""

    deadlines: list[float] = field(default_factory=list)

    async def score(
        self,
        query: Text,
        documents: Sequence[Text],
        *,
        deadline: Deadline,
        call_id: str,
        instruction: Text | None = None,
    ) -> StageScores:
        self.deadlines.append(deadline.at)
        late = Deadline(deadline.clock() + 1e6, deadline.clock)
        return await ScriptedStage.score(self, query, documents, deadline=late, call_id=call_id)


@_PROPERTY
@given(scenarios())
def test_inv5_the_answer_leaves_within_the_deadline(scenario: Scenario) -> None:
    """Whatever stages do, the answer leaves by the deadline that holds, and nothing goes on behind it."""
    played = play(scenario)
    assert played.took_ms <= scenario.asked_ms + _MOMENT_MS
    assert played.ranking.decision.deadline_ms == scenario.asked_ms
    assert played.ranking.decision.total_ms == pytest.approx(played.took_ms)
    assert played.left_behind == 0


@_PROPERTY
@given(scenarios())
def test_inv5_a_stage_that_ignores_its_deadline_is_cancelled_in_time(scenario: Scenario) -> None:
    """Even a stage that never looks at its deadline holds no answer up: it is cancelled, and that is recorded."""
    scripts = {StageName.SMALL: scenario.small, StageName.LARGE: scenario.large}
    stages = {
        name: _Stubborn(lambda query, text: 0.0, delay_ms=script.delay_ms)
        for name, script in scripts.items()
        if script is not None
    }
    played = play(scenario, stages=stages)
    assert played.took_ms <= scenario.asked_ms + _MOMENT_MS
    assert played.left_behind == 0
    codes = [item.code for item in played.ranking.decision.rounds]
    assert sum(stage.cancelled for stage in stages.values()) == codes.count("cancelled")
    if "cancelled" in codes:
        assert DegradedReason.STAGE_TIMEOUT in played.ranking.decision.degraded
        assert played.took_ms == pytest.approx(scenario.asked_ms - scenario.reserve_ms / 2)


@_PROPERTY
@given(scenarios())
def test_inv5_no_call_leaves_without_a_deadline_that_keeps_the_reserve(scenario: Scenario) -> None:
    """Each call carries an absolute deadline: its own budget or the reserve before the caller's, the sooner."""
    scripts = {StageName.SMALL: scenario.small, StageName.LARGE: scenario.large}
    stages = {name: _Stubborn(lambda query, text: 0.0) for name, script in scripts.items() if script is not None}
    play(scenario, stages=stages)
    budgets = {StageName.SMALL: _small_ms(scenario), StageName.LARGE: scenario.large_ms}
    for name, stage in stages.items():
        for at in stage.deadlines:
            assert at * 1000 == pytest.approx(min(budgets[name], scenario.asked_ms - scenario.reserve_ms))


@_PROPERTY
@given(scenarios(), st.lists(st.integers(0, 16), min_size=1, max_size=4))
def test_inv6_one_request_is_decided_by_one_release(scenario: Scenario, depths: list[int]) -> None:
    """Requests under way together on several releases and the same stages are each answered as if alone."""
    variants = [scenario, *(replace(scenario, depth=depth) for depth in depths)]
    scripts = {StageName.SMALL: scenario.small, StageName.LARGE: scenario.large}
    stages = {name: script.stage() for name, script in scripts.items() if script is not None}

    async def together() -> list[Ranking]:
        clock = asyncio.get_running_loop().time
        pipelines = [
            Pipeline(
                variant.release().model_copy(update={"release": f"r{number}"}),
                stages,
                clock=clock,
                new_id=lambda: "id-1",
                hash_query=lambda query: "hash",
                count_fault=lambda error: None,
            )
            for number, variant in enumerate(variants)
        ]
        return await asyncio.gather(*(pipeline.rerank(scenario.request()) for pipeline in pipelines))

    for number, (variant, ranking) in enumerate(zip(variants, run_virtual(together()), strict=True)):
        alone = play(variant).ranking
        assert ranking.results == alone.results
        assert ranking.decision == replace(alone.decision, release=f"r{number}")


_CANARY = "canary-5f3a"


@_PROPERTY
@given(scenarios(), st.sampled_from(("debug", "info", "warning", "error")))
def test_inv7_g1_no_text_comes_out_of_logs_metrics_or_reprs(scenario: Scenario, level: str) -> None:
    """With a mark in the query, in every document and in the fault raised, no record or repr holds the mark."""

    def marked(script: Script | None) -> Script | None:
        if script is None:
            return None
        fails = ValueError(_CANARY) if isinstance(script.fails, Exception) else script.fails
        refused = frozenset(_CANARY + text for text in script.refused)
        return replace(script, fails=fails, refused=refused)

    told = replace(
        scenario,
        query=_CANARY,
        texts=tuple(_CANARY + text for text in scenario.texts),
        small=marked(scenario.small),
        large=marked(scenario.large),
    )
    metrics = Metrics()
    with captured_log(level) as stream:
        played = play(told)
        log_decision(played.ranking.decision)
        metrics.observe(played.ranking.decision)
        for fault in played.faults:
            metrics.count_fault(fault)
            get_logger().error("fault", error=fault, exc_info=fault, nested=[fault])
        get_logger().warning("request", request=told.request())
    shown = [repr(played.ranking), repr(told.request()), metrics.exposition().decode(), stream.getvalue().decode()]
    shown.append(orjson.dumps(decision_record(played.ranking.decision)).decode())
    assert not any(_CANARY in text for text in shown)


@_PROPERTY
@given(scenarios(), st.integers(-64, 64), st.integers(-64, 64))
def test_inv8_a_constant_added_to_raw_scores_changes_no_decision(
    scenario: Scenario, to_small: int, to_large: int
) -> None:
    """Shifting all raw scores of a stage changes neither order nor depth nor escalated set."""

    def shifted(script: Script | None, constant: int) -> Script | None:
        if script is None:
            return None
        return replace(script, scores={text: script.scores.get(text, 0.0) + constant for text in scenario.texts})

    after = play(
        replace(scenario, small=shifted(scenario.small, to_small), large=shifted(scenario.large, to_large))
    ).ranking
    before = play(scenario).ranking
    assert [item.index for item in after.results] == [item.index for item in before.results]
    assert after.decision == before.decision


@_PROPERTY
@given(scenarios())
def test_inv9_the_same_input_gives_the_same_answer(scenario: Scenario) -> None:
    """Two runs of one request agree in every field."""
    assert play(scenario).ranking == play(scenario).ranking


@_PROPERTY
@given(scenarios(healthy=True))
def test_inv9_ties_keep_first_stage_order(scenario: Scenario) -> None:
    """Where a stage scores all alike, its block is in first-stage order."""

    def flat(script: Script | None) -> Script | None:
        return None if script is None else replace(script, scores={})

    played = play(replace(scenario, small=flat(scenario.small), large=flat(scenario.large)))
    for name in StageName:
        block = [item.index for item in played.ranking.results if item.stage is name]
        assert block == sorted(block)


def _eighths(*, missing: bool) -> st.SearchStrategy[float | None]:
    numbers = st.integers(-40, 40).map(lambda number: number / 8)
    return st.none() | numbers if missing else numbers


@st.composite
def _calibrated(draw: st.DrawFn) -> tuple[Query, dict[str, Any]]:
    """Draw a query whose scores are exact and often tied, and a calibrated escalation of one or two rounds."""
    count = draw(st.integers(2, 14))

    def column(*, missing: bool) -> list[float | None]:
        return draw(st.lists(_eighths(missing=missing), min_size=count, max_size=count))

    drawn = {
        "price_per_pair": draw(st.sampled_from((1e-5, 1e-3, 0.01, 0.05))),
        "rounds": draw(st.integers(1, 2)),
        "chunk": draw(st.integers(1, 4)),
        "first_round_factor": draw(st.sampled_from((1.0, 8.0, 1e6))),
        "max_share": draw(st.sampled_from((0.4, 1.0))),
        "k": draw(st.sampled_from((10, 3, 1))),
        "final_order": draw(st.sampled_from(("large", "fitted"))),
    }
    if draw(st.booleans()):
        drawn["accept"] = {"expected_loss_at_most": 0.3}
    return Query(column(missing=True), column(missing=True), column(missing=True)), rule(REORDERING, **drawn)


def _shifted(scores: Sequence[float | None], constant: int) -> list[float | None]:
    return [None if score is None else score + constant for score in scores]


def _decided(played: Escalated) -> tuple[Any, ...]:
    decision = played.ranking.decision
    sent = tuple(tuple(call) for call in played.sent)
    return (
        played.order,
        decision.action,
        decision.escalated,
        sent,
        decision.estimates,
        decision.misfit,
        decision.degraded,
    )


@_PROPERTY
@given(_calibrated(), st.integers(-64, 64), st.integers(-64, 64), st.integers(-64, 64))
def test_inv8_a_constant_added_to_raw_scores_changes_no_calibrated_decision(
    drawn: tuple[Query, dict[str, Any]], to_small: int, to_large: int, to_channel: int
) -> None:
    """Shifting a stage's raw scores, or a channel's, changes neither what is sent, in which rounds, nor the order.

    Whatever the final order is.
    """
    query, escalation = drawn
    shifted = Query(_shifted(query.small, to_small), _shifted(query.large, to_large), _shifted(query.bm25, to_channel))
    before, after = (escalate(each, escalation, REORDERING) for each in (query, shifted))
    assert _decided(after) == _decided(before)


@_PROPERTY
@given(_calibrated(), st.sampled_from((0.125, 8.0, 1024.0)))
def test_inv3_stretching_the_small_scores_changes_no_calibrated_decision(
    drawn: tuple[Query, dict[str, Any]], factor: float
) -> None:
    """The scale of the small stage is not compared with anything."""
    query, escalation = drawn
    stretched = replace(query, small=[None if score is None else score * factor for score in query.small])
    before, after = (escalate(each, escalation, REORDERING) for each in (query, stretched))
    assert _decided(after) == _decided(before)


@_PROPERTY
@given(_calibrated())
def test_inv1_inv3_a_calibrated_answer_is_a_permutation_with_the_large_block_on_top(
    drawn: tuple[Query, dict[str, Any]],
) -> None:
    """Every candidate once: what the large stage scored, the small order, and first-stage order behind them.

    The action says which part was sent.
    """
    query, escalation = drawn
    played = escalate(query, {**escalation, "final_order": "large"}, REORDERING)
    decision = played.ranking.decision
    count = len(query.small)
    block = {place for place in decision.escalated if query.large[place] is not None}

    def place_of(place: int) -> tuple[int, float]:
        small, large = query.small[place], query.large[place]
        if place in block:
            return 0, -(large or 0.0)
        return (1, -small) if small is not None else (2, 0.0)

    assert played.order == sorted(range(count), key=place_of)
    assert sorted(place for call in played.sent for place in call) == sorted(decision.escalated)
    assert len(set(decision.escalated)) == len(decision.escalated)
    assert played.faults == []
    match decision.action:
        case "accept":
            assert not decision.escalated
        case "query":
            assert len(decision.escalated) == count
        case "cluster":
            assert 0 < len(decision.escalated) < count
        case "safe":
            assert decision.misfit is not None
        case other:
            raise AssertionError(other)
    assert len(decision.escalated) <= escalation["max_share"] * count + 1e-9


@_PROPERTY
@given(st.integers(2, 14), st.sampled_from((1e-5, 0.01)), st.integers(1, 2))
def test_inv9_ties_of_a_calibrated_release_keep_first_stage_order(count: int, price: float, rounds: int) -> None:
    """Where every scorer finds all candidates alike, the block, what follows it and the tail are as they came."""
    flat = Query([1.0] * count, [2.0] * count, [3.0] * count)
    played = escalate(flat, rule(price_per_pair=price, rounds=rounds, chunk=2, max_share=0.6), CALIBRATION)
    block = [item.index for item in played.ranking.results if item.stage is StageName.LARGE]
    assert block == list(range(len(block)))
    assert played.order == list(range(count))


@_PROPERTY
@given(_calibrated())
def test_inv9_a_calibrated_decision_is_repeated_exactly(drawn: tuple[Query, dict[str, Any]]) -> None:
    """Same input, release, rounds and scores: the same answer in every field."""
    assert escalate(*drawn, REORDERING).ranking == escalate(*drawn, REORDERING).ranking


@pytest.mark.parametrize("name", ["total_ms", "small_ms", "large_ms", "reserve_ms"])
@pytest.mark.parametrize("level", [(), ("stages",), ("stages", "small"), ("budgets",), ("depth",), ("limits",)])
def test_inv10_an_unknown_key_is_an_error(level: tuple[str, ...], name: str) -> None:
    """A key that no part of a release knows is refused by name, wherever it stands."""
    data = release_data(depth={"kind": "fixed", "depth": 5}, limits={"max_candidates": 10})
    at = data
    for key in level:
        at = at[key]
    at[f"{name}_x"] = 1
    with pytest.raises(ConfigError, match=f"{name}_x: Extra inputs are not permitted"):
        parse_release(data)


@pytest.mark.parametrize(
    ("changes", "depth", "escalated"),
    [
        ({"depth": 0}, 0, ()),
        ({"top_m": 0}, 3, ()),
        ({"reserve_ms": 0.0}, 3, (2, 1)),
        ({"deadline_ms": 0.0}, 3, (0, 1)),
    ],
)
def test_inv10_zero_is_a_number_and_not_a_default(
    changes: dict[str, Any], depth: int, escalated: tuple[int, ...]
) -> None:
    """A depth, a top m, a reserve and a deadline of zero mean zero."""
    scenario = Scenario(("ant", "bee", "cat"), small=Script({"cat": 2.0, "bee": 1.0}), top_m=2)
    decision = play(replace(scenario, **changes)).ranking.decision
    assert (decision.depth, decision.escalated) == (depth, escalated)
    assert decision.degraded == (
        (DegradedReason.DEADLINE_TOO_SHORT,) if changes.get("deadline_ms") == pytest.approx(0.0) else ()
    )


@_PROPERTY
@given(scenarios())
def test_outward_scores_repeat_the_order_in_any_precision(scenario: Scenario) -> None:
    """Scores fall strictly within (0, 1), as float32 too, and their logits are finite and fall as well."""
    results = play(scenario).ranking.results
    scores = [item.score for item in results]
    narrow = np.array(scores, dtype=np.float32)
    logits = [logit(score) for score in scores]
    for falling in (scores, narrow.tolist(), logits, np.array(logits, dtype=np.float32).tolist()):
        assert all(high > low for high, low in pairwise(falling))
        assert all(map(math.isfinite, falling))
    assert all(0.0 < score < 1.0 for score in (*scores, *narrow.tolist()))
    assert sorted(results, key=lambda item: -item.score) == list(results)


@_PROPERTY
@given(scenarios(), st.booleans())
def test_fail_closed_is_an_error_exactly_where_the_answer_would_be_degraded(
    scenario: Scenario, by_release: bool
) -> None:
    """A caller or a release that asks for it gets an error with the first reason, and never a degraded answer."""
    degraded = play(scenario).ranking.decision.degraded
    closed = replace(scenario, fallback="error") if by_release else replace(scenario, fail_closed=True)
    if not degraded:
        assert play(closed).order == play(scenario).order
        return
    with pytest.raises(RequestError) as raised:
        play(closed)
    assert raised.value.fault == "not_answered"
    assert raised.value.rule == degraded[0]
    assert raised.value.retry_after_s == 1


def test_every_reason_of_a_stage_error_is_in_the_closed_list() -> None:
    """Each subclass of StageError has a reason of its own."""
    reasons = [error.reason for error in STAGE_ERRORS]
    assert set(reasons) <= set(DegradedReason)
    assert len(set(reasons)) == len(STAGE_ERRORS) == len(StageError.__subclasses__())


def test_a_decision_is_frozen() -> None:
    """What was decided cannot be changed afterwards."""
    decision = play(Scenario(("ant",))).ranking.decision
    with pytest.raises(dataclasses.FrozenInstanceError):
        decision.depth = 3  # type: ignore[misc]
