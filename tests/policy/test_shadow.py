"""What a release would have decided: the same as it decides when it serves."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cascade.calibration.calibrated import Calibration
from cascade.decision import Action, Decision
from cascade.pipeline import Pipeline
from cascade.policy.inputs import channel_scores, known_within, signals_of
from cascade.policy.release import Release, parse_release
from cascade.policy.shadow import Shadow, shadow_decision
from cascade.testing.calibration import scripted_calibration
from cascade.testing.clock import run_virtual
from cascade.testing.stages import ScriptedStage
from cascade.text import Text
from cascade.types import Candidate, Request, StageName
from tests.scenario import release_data

_DIGEST = f"sha256:{'0' * 64}"
_CALIBRATED = {"kind": "calibrated", "calibration": _DIGEST, "k": 5, "price_per_pair": 0.01, "safe_top_m": 3}
_RULES: list[dict[str, Any] | str] = [
    "none",
    {"kind": "static", "top_m": 4},
    {"kind": "static-fused", "calibration": _DIGEST, "top_m": 4, "k": 5, "safe_top_m": 2},
    _CALIBRATED | {"rounds": 1},
    _CALIBRATED | {"rounds": 2, "chunk": 2, "max_share": 0.6},
    _CALIBRATED | {"accept": {"expected_loss_at_most": 0.2}},
    _CALIBRATED | {"direct": {"when": [{"signal": "bm25.gap", "at_least": 0.2}], "top_m": 3}},
]
_DEPTHS: list[Any] = [
    0,
    6,
    {"kind": "skip", "default": 4},
    {"kind": "signals", "default": 5, "rules": [{"when": [{"signal": "bm25.gap", "at_least": 0.3}], "depth": 8}]},
]


def _release(mode: str, depth: Any, escalation: Any) -> Release:
    return parse_release(release_data(mode=mode, depth=depth, escalation=escalation))


def _request(bm25: list[float]) -> Request:
    candidates = tuple(Candidate(Text(f"t{place}"), None, {"bm25": score}) for place, score in enumerate(bm25))
    return Request(Text("which animal"), candidates)


def _served(
    release: Release,
    request: Request,
    small: dict[int, float],
    large: dict[int, float],
    calibration: Calibration | None,
) -> Decision:
    """Return what a pipeline decides whose stages give these scores and leave out the rest."""

    def stage(scores: dict[int, float]) -> ScriptedStage:
        of_text = {f"t{place}": score for place, score in scores.items()}
        return ScriptedStage(lambda query, text: of_text[text], refuses=lambda text: text not in of_text)

    async def answer() -> Decision:
        pipeline = Pipeline(
            release,
            {StageName.SMALL: stage(small), StageName.LARGE: stage(large)},
            calibration=calibration,
            clock=lambda: 0.0,
            new_id=lambda: "id",
            hash_query=lambda query: "hash",
            count_fault=lambda error: pytest.fail(repr(error)),
        )
        return (await pipeline.rerank(request)).decision

    return run_virtual(answer())


_scores = st.lists(st.none() | st.integers(-8, 8), min_size=10, max_size=10).map(
    lambda drawn: {place: score / 2 for place, score in enumerate(drawn) if score is not None}
)


@settings(deadline=None, max_examples=300)
@given(
    depth=st.sampled_from(_DEPTHS),
    rule=st.sampled_from(_RULES),
    bm25=st.lists(st.integers(0, 40).map(float), min_size=10, max_size=10),
    small=_scores,
    large=_scores,
    fitted=st.sampled_from(["absent", "one round", "two rounds"]),
)
def test_a_shadow_is_what_the_pipeline_decides(
    depth: Any, rule: Any, bm25: list[float], small: dict[int, float], large: dict[int, float], fitted: str
) -> None:
    """Depth, action, the escalated set in its order, rounds, estimates and misfit are those of serving in time."""
    calibration = None if fitted == "absent" else scripted_calibration(second_round=fitted == "two rounds")
    request = _request(bm25)
    observing = _release("observe", depth, rule)
    shadow = shadow_decision(observing, request, small, large, calibration)
    served_rule = (
        {"kind": "static", "top_m": 0} if rule == "none" else rule
    )  # where nothing escalates, no stage large is
    decision = _served(_release("cascade", depth, served_rule), request, small, large, calibration)
    if rule != "none":
        assert shadow.action is decision.action
    assert (shadow.depth, shadow.depth_reason) == (decision.depth, decision.depth_reason)
    assert shadow.escalated == decision.escalated
    assert shadow.rounds == sum(each.stage is StageName.LARGE for each in decision.rounds)
    assert (shadow.estimates, shadow.misfit) == (decision.estimates, decision.misfit)
    assert (shadow.query_class, dict(shadow.signals)) == (decision.query_class, dict(decision.signals))


def test_the_second_round_sees_only_what_the_first_asked_for() -> None:
    """Large scores that the first round did not ask for change nothing of what it would have asked for."""
    rule = _CALIBRATED | {"rounds": 2, "chunk": 2, "first_round_factor": 1000.0, "price_per_pair": 0.02}
    calibration = scripted_calibration(second_round=True)
    request = _request([9.0, 8.0, 7.0, 6.0, 5.0, 4.0])
    small = {0: 3.0, 1: 2.0, 2: 1.0, 3: 0.0, 4: -1.0, 5: -2.0}

    def shadow(large: dict[int, float]) -> Shadow:
        return shadow_decision(_release("observe", 6, rule), request, small, large, calibration)

    usual = shadow(dict.fromkeys(range(6), 0.0))
    assert usual.escalated[:2] == (0, 1)
    other = shadow(dict.fromkeys(range(6), 0.0) | {5: 50.0})
    assert usual.escalated == other.escalated
    assert 5 not in usual.escalated


def test_where_the_first_round_would_have_scored_nothing_there_is_no_second() -> None:
    """A large stage that left out all that it was sent is not asked again."""
    rule = _CALIBRATED | {"rounds": 2, "chunk": 2, "first_round_factor": 1000.0}
    shadow = shadow_decision(
        _release("observe", 6, rule),
        _request([9.0, 8.0, 7.0, 6.0, 5.0, 4.0]),
        {place: -float(place) for place in range(6)},
        {},
        scripted_calibration(second_round=True),
    )
    assert (shadow.action, shadow.rounds, len(shadow.escalated)) == (Action.CLUSTER, 1, 2)


def test_channels_are_arrays_in_first_stage_order() -> None:
    """A candidate without a channel's score has NaN there, and channels come in the order in which they are met."""
    candidates = (Candidate(Text("a"), None, {"bm25": 2.0}), Candidate(Text("b"), None, {"dense": 0.5}))
    found = channel_scores(candidates)
    assert list(found) == ["bm25", "dense"]
    assert [str(values.tolist()) for values in found.values()] == ["[2.0, nan]", "[nan, 0.5]"]
    known = known_within(1, candidates, {0: 1.0, 1: 2.0}, {})
    assert (known.small.tolist(), str(known.large.tolist()), list(known.channels)) == ([1.0], "[nan]", ["bm25"])


def test_only_signals_that_a_rule_reads_are_computed() -> None:
    """A release without rules on signals computes none; with a rule on the class, that and no value."""
    request = replace(_request([2.0, 1.0]), query=Text("error E1234"))
    assert signals_of(_release("cascade", 5, {"kind": "static", "top_m": 1}), request).values == {}
    greedy = {"kind": "greedy", "default": 5, "classes": {"identifier": 3}}
    found = signals_of(_release("cascade", greedy, {"kind": "static", "top_m": 1}), request)
    assert (found.query_class, dict(found.values)) == ("identifier", {})
