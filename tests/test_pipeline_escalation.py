"""One request under a calibrated escalation, case by case."""

from __future__ import annotations

from typing import Any

import pytest

from cascade.decision import Action, DegradedReason
from cascade.errors import NotAnswered, StageOverloaded, StageTimeout
from cascade.testing.calibration import scripted_calibration
from cascade.types import StageName
from tests.escalated import CALIBRATION, REORDERING, Escalated, Query, escalate, rule

_HEADS = pytest.mark.parametrize("k", [10, 3, 1])
_SMALL = [4.0, -1.0, 2.0, 3.0, 0.0, 1.0, -2.0, -3.0, 2.5, -0.5, 0.5, -1.5]
_BY_SMALL = [0, 3, 8, 2, 5, 10, 4, 9, 1, 11, 6, 7]
_LARGE = [0.0, 11.0, 1.0, 2.0, 10.0, 3.0, 9.0, 4.0, 8.0, 5.0, 7.0, 6.0]
_QUERY = Query(_SMALL, _LARGE, [0.0] * 12)
_TWO_ROUNDS: dict[str, Any] = {"price_per_pair": 1e-6, "chunk": 4, "first_round_factor": 1e9}
"""The first round sends four, the second all that is left."""


def _block(played: Escalated) -> list[int]:
    return [item.index for item in played.ranking.results if item.stage is StageName.LARGE]


def _by_large(places: list[int]) -> list[int]:
    return sorted(places, key=lambda place: -_LARGE[place])


@_HEADS
def test_an_accepted_query_never_reaches_the_large_stage(k: int) -> None:
    """Nothing is worth a price of one: the small order stands, with its estimates, and is not degraded."""
    played = escalate(_QUERY, rule(k=k, price_per_pair=1.0))
    decision = played.ranking.decision
    assert (played.order, played.sent) == (_BY_SMALL, [])
    assert (decision.action, decision.escalated, decision.degraded) == (Action.ACCEPT, (), ())
    assert decision.stage is StageName.SMALL
    assert decision.estimates is not None
    assert decision.estimates.k == k


@_HEADS
def test_a_cluster_is_ordered_by_the_large_stage_on_top_of_the_small_order(k: int) -> None:
    """Sent in first-stage order, decided in the order of value, and behind it the small order."""
    played = escalate(_QUERY, rule(k=k, price_per_pair=1e-6, max_share=0.5, rounds=1))
    decision = played.ranking.decision
    assert decision.escalated == tuple(_BY_SMALL[:6])
    assert played.sent == [sorted(_BY_SMALL[:6])]
    assert played.order == [*_by_large(_BY_SMALL[:6]), *_BY_SMALL[6:]]
    assert decision.action is Action.CLUSTER


@_HEADS
def test_a_query_is_escalated_whole_in_two_rounds(k: int) -> None:
    """Four, then the other eight: one block, ordered by all large scores; every round is told."""
    played = escalate(_QUERY, rule(k=k, **_TWO_ROUNDS))
    decision = played.ranking.decision
    assert [len(call) for call in played.sent] == [4, 8]
    assert sorted(played.sent[0] + played.sent[1]) == list(range(12))
    assert played.order == _by_large(list(range(12)))
    assert (decision.action, decision.degraded) == (Action.QUERY, ())
    assert sorted(decision.escalated) == list(range(12))
    assert [(item.stage, item.sent) for item in decision.rounds] == [("small", 12), ("large", 4), ("large", 8)]


def test_a_second_round_that_cannot_fit_is_left_out() -> None:
    """Eight pairs take 40 ms as a rule and 30 are left: the first round and its action stand, and it is told."""
    played = escalate(
        _QUERY, rule(**_TWO_ROUNDS), large={"delays_ms": [20.0]}, budgets={"large_ms": 50}, known_ms_a_pair=5.0
    )
    decision = played.ranking.decision
    assert [len(call) for call in played.sent] == [4]
    assert _block(played) == _by_large(_BY_SMALL[:4])
    assert played.order[4:] == _BY_SMALL[4:]
    assert decision.escalated == tuple(_BY_SMALL[:4])
    assert (decision.action, decision.degraded) == (Action.CLUSTER, (DegradedReason.DEADLINE_TOO_SHORT,))
    assert played.took_ms == pytest.approx(20.0)
    assert decision.estimates is not None
    told = [(item.outcome, item.code, item.sent) for item in decision.rounds]
    assert told == [("ok", "", 12), ("ok", "", 4), ("deadline_too_short", "no_time", 0)]


def test_a_second_round_that_fits_is_made() -> None:
    """Eight pairs take 40 ms as a rule, and 41 are left."""
    played = escalate(
        _QUERY, rule(**_TWO_ROUNDS), large={"delays_ms": [19.0, 1.0]}, budgets={"large_ms": 60}, known_ms_a_pair=5.0
    )
    assert [len(call) for call in played.sent] == [4, 8]
    assert played.ranking.decision.degraded == ()


def test_a_first_round_that_cannot_fit_leaves_the_small_order() -> None:
    """Four pairs take 80 ms as a rule and 60 are left: nothing is sent to the large stage, and the answer says so."""
    played = escalate(_QUERY, rule(**_TWO_ROUNDS), known_ms_a_pair=20.0)
    assert (played.sent, played.order) == ([], _BY_SMALL)
    assert played.ranking.decision.degraded == (DegradedReason.DEADLINE_TOO_SHORT,)
    assert played.took_ms == pytest.approx(0.0)


@pytest.mark.parametrize("failure", [StageOverloaded, StageTimeout, ValueError("a fault")])
def test_inv2_a_failing_second_round_keeps_the_first(failure: Any) -> None:
    """What the first round scored is the block; what the second was sent keeps the small order, and the reason is told."""
    played = escalate(_QUERY, rule(**_TWO_ROUNDS), large={"failures": [None, failure]})
    decision = played.ranking.decision
    reason = getattr(failure, "reason", DegradedReason.INTERNAL_ERROR)
    assert [len(call) for call in played.sent] == [4, 8]
    assert _block(played) == _by_large(_BY_SMALL[:4])
    assert played.order[4:] == _BY_SMALL[4:]
    assert decision.degraded == (reason,)
    assert [item.outcome for item in decision.rounds] == ["ok", "ok", reason]


def test_a_second_round_that_times_out_keeps_the_first() -> None:
    """The answer leaves in time, with the first round's block."""
    played = escalate(_QUERY, rule(**_TWO_ROUNDS), large={"delays_ms": [1.0, 1e6]})
    assert _block(played) == _by_large(_BY_SMALL[:4])
    assert played.ranking.decision.degraded == (DegradedReason.STAGE_TIMEOUT,)
    assert played.took_ms == pytest.approx(60.0)


def test_a_failing_first_round_is_the_last() -> None:
    """No second call is made to a stage that just failed; the small order stands."""
    played = escalate(_QUERY, rule(**_TWO_ROUNDS), large={"failures": [StageOverloaded, None]})
    assert [len(call) for call in played.sent] == [4]
    assert played.order == _BY_SMALL
    assert played.ranking.decision.degraded == (DegradedReason.STAGE_OVERLOADED,)


def test_what_the_large_stage_refused_is_not_sent_again() -> None:
    """It keeps the small order behind the block, is counted, and takes part in no second round."""
    query = Query(_SMALL, [None if place == 3 else score for place, score in enumerate(_LARGE)], [0.0] * 12)
    played = escalate(query, rule(**_TWO_ROUNDS))
    assert [len(call) for call in played.sent] == [4, 8]
    assert 3 in played.sent[0]
    assert 3 not in played.sent[1]
    assert played.order[-1] == 3
    assert played.ranking.decision.excluded == 1
    assert played.ranking.decision.degraded == ()


def test_what_the_small_stage_refused_is_not_escalated() -> None:
    """A document without a small score keeps first-stage order at the end."""
    query = Query([None if place == 0 else score for place, score in enumerate(_SMALL)], _LARGE, [0.0] * 12)
    played = escalate(query, rule(**_TWO_ROUNDS))
    assert all(0 not in call for call in played.sent)
    assert played.order == [*_by_large(list(range(1, 12))), 0]


@pytest.mark.parametrize(
    ("query", "calibration", "why"),
    [
        (_QUERY, None, "no_calibration"),
        (_QUERY, scripted_calibration(("bm25",), most_candidates=11), "candidates_out_of_range"),
        (Query(_SMALL, _LARGE, [None] * 12), CALIBRATION, "channel_missing"),
        (Query([None] * 12, _LARGE, [0.0] * 12), CALIBRATION, "too_few_scores"),
    ],
)
def test_where_the_calibration_does_not_hold_the_safe_mode_answers(query: Query, calibration: Any, why: str) -> None:
    """The top of the small order goes to the large stage in one call; reason and cause are told."""
    played = escalate(query, rule(safe_top_m=3), calibration)
    decision = played.ranking.decision
    assert [len(call) for call in played.sent] == [min(3, len(query.small))]
    assert (decision.action, decision.misfit, decision.estimates) == (Action.SAFE, why, None)
    assert decision.degraded == (DegradedReason.CALIBRATION_MISMATCH,)


def test_a_failing_small_stage_leaves_the_head_of_the_first_stage_to_the_large_one() -> None:
    """The safe mode decides on first-stage order; why there are no small scores is told, and no mismatch."""
    played = escalate(_QUERY, rule(safe_top_m=3), small={"failures": [StageOverloaded]})
    assert played.sent == [[0, 1, 2]]
    assert played.order == [1, 2, 0, *range(3, 12)]
    assert played.ranking.decision.degraded == (DegradedReason.STAGE_OVERLOADED,)


def test_the_safe_mode_is_an_error_for_who_fails_closed() -> None:
    """A degraded answer is not what such a caller asked for."""
    with pytest.raises(NotAnswered, match="calibration_mismatch"):
        escalate(_QUERY, rule(), None, request={"fail_closed": True})


_GAP = {"when": [{"signal": "bm25.gap", "at_least": 0.5}], "top_m": 5}
_CLEAR = Query(_SMALL, _LARGE, [9.0, *[1.0] * 11])


@_HEADS
def test_a_direct_query_goes_past_the_small_stage(k: int) -> None:
    """The head of first-stage order goes to the large stage, and the small one is not asked."""
    played = escalate(_CLEAR, rule(k=k, direct=_GAP))
    decision = played.ranking.decision
    assert (played.sent, played.small_calls) == ([[0, 1, 2, 3, 4]], 0)
    assert played.order == [*_by_large([0, 1, 2, 3, 4]), *range(5, 12)]
    assert (decision.action, decision.degraded, decision.escalated) == (Action.DIRECT, (), (0, 1, 2, 3, 4))
    assert decision.signals["bm25.gap"] >= 0.5


def test_a_query_that_does_not_meet_the_conditions_is_not_direct() -> None:
    """It takes the way of any other."""
    played = escalate(_QUERY, rule(direct=_GAP, price_per_pair=1.0))
    assert (played.sent, played.small_calls) == ([], 1)
    assert played.ranking.decision.action is Action.ACCEPT


def test_a_direct_query_falls_back_to_the_small_stage_with_all_its_time() -> None:
    """A failing large stage is asked once; the small one answers, and may use its whole budget: no round follows it."""
    played = escalate(
        _CLEAR,
        rule(direct=_GAP),
        large={"failures": [StageOverloaded]},
        small={"delays_ms": [39.0]},
        request={"deadline_ms": 60.0},
    )
    decision = played.ranking.decision
    assert (played.sent, played.small_calls) == ([[0, 1, 2, 3, 4]], 1)
    assert played.order == _BY_SMALL
    assert (decision.action, decision.degraded) == (Action.DIRECT, (DegradedReason.STAGE_OVERLOADED,))
    assert [(item.stage, item.outcome) for item in decision.rounds] == [
        ("large", "stage_overloaded"),
        ("small", "ok"),
    ]


def test_a_direct_query_that_no_stage_answers_keeps_first_stage_order() -> None:
    """Both fail: the order that came goes back, with both reasons."""
    played = escalate(
        _CLEAR, rule(direct=_GAP), large={"failures": [StageOverloaded]}, small={"failures": [StageTimeout]}
    )
    assert played.order == list(range(12))
    assert played.ranking.decision.degraded == (DegradedReason.STAGE_OVERLOADED, DegradedReason.STAGE_TIMEOUT)


def test_who_asks_for_the_small_stage_only_is_not_sent_past_it() -> None:
    """A caller that leaves the large stage out does so for direct queries too."""
    played = escalate(_CLEAR, rule(direct=_GAP), request={"small_only": True})
    assert (played.sent, played.small_calls) == ([], 1)
    assert played.order == _BY_SMALL


def test_a_fitted_final_order_orders_the_block_where_the_release_asks_for_it() -> None:
    """A twentieth of the large score and the z of the channel; off, the large order holds."""
    query = Query(_SMALL, _LARGE, [float(place * 7 % 12) for place in range(12)])
    sent: dict[str, Any] = {"price_per_pair": 1e-6, "rounds": 1, "max_share": 0.5}
    off = escalate(query, rule(REORDERING, **sent), REORDERING)
    on = escalate(query, rule(REORDERING, final_order="fitted", **sent), REORDERING)
    assert _block(off) == _by_large(_block(off))
    assert sorted(_block(on)) == sorted(_block(off))
    assert _block(on) != _block(off)
    z = {place: place * 7 % 12 / (1.4826 * 3) for place in range(12)}  # the median deviation of 0..11 is 3
    assert _block(on) == sorted(_block(on), key=lambda place: -(0.05 * _LARGE[place] + z[place]))
    assert on.order[6:] == off.order[6:]
    assert [item.score for item in on.ranking.results] == sorted(
        (item.score for item in on.ranking.results), reverse=True
    )


def test_a_fitted_order_that_the_calibration_lacks_is_the_large_order() -> None:
    """Nor does the safe mode, which has no estimate, use one."""
    asked = rule(final_order="fitted", price_per_pair=1e-6, rounds=1)
    assert escalate(_QUERY, asked).order == _by_large(list(range(12)))
    safe = escalate(_QUERY, rule(REORDERING, final_order="fitted", safe_top_m=4), None)
    assert _block(safe) == _by_large(_BY_SMALL[:4])


def test_static_fused_is_one_round_for_every_query() -> None:
    """As many as it says, the most valuable first."""
    fused = {"kind": "static-fused", "calibration": CALIBRATION.sha256, "top_m": 4}
    played = escalate(_QUERY, fused)
    assert played.sent == [sorted(_BY_SMALL[:4])]
    assert played.ranking.decision.action is Action.STATIC
    assert played.ranking.decision.estimates is not None
