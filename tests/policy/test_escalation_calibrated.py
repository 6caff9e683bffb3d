"""Which candidates the large stage scores, by what a calibration expects of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from cascade.calibration.calibrated import Calibration
from cascade.decision import Action
from cascade.errors import ConfigError
from cascade.policy.escalation import Known, choose_round, goes_direct, most_escalated, signals_of_direct
from cascade.policy.escalation_rules import (
    CalibratedEscalation,
    Escalation,
    EscalationSpec,
    FusedEscalation,
    NoEscalation,
    StaticEscalation,
)
from cascade.policy.release import parse_release
from cascade.signals import Signals
from cascade.testing.calibration import scripted_artefact, scripted_calibration
from cascade.types import QueryClass
from tests.calibration.drawn import Lists, lists
from tests.scenario import release_data

FloatArray = npt.NDArray[np.float64]

_NAN = np.nan
_DIGEST = "sha256:" + "0" * 64
_HEADS = pytest.mark.parametrize("k", [10, 3, 1])
_ONE_CHANNEL = scripted_calibration(("bm25",), second_round=True)
_DRAWN = scripted_calibration(("bm25", "dense"), channel_weight=0.5, second_round=True, least_candidates=1)


def _rule(**fields: Any) -> CalibratedEscalation:
    return CalibratedEscalation.model_validate(
        {"kind": "calibrated", "calibration": _DIGEST, "price_per_pair": 0.01, **fields}
    )


def _known(small: FloatArray, channels: Mapping[str, FloatArray] | None = None) -> Known:
    told = {"bm25": np.arange(float(len(small)))} if channels is None else channels
    return Known(small, told, np.full(len(small), _NAN))


def _drawn(drawn: Lists) -> Known:
    return Known(drawn.small, drawn.channels, np.full(len(drawn.small), _NAN))


def _values(calibration: Calibration, known: Known, k: int) -> FloatArray:
    return calibration.value(calibration.entry(known.small, known.channels), k)


_SCORES = np.array([4.0, -1.0, 2.0, 3.0, 0.0, 1.0, -2.0, -3.0, 2.5, -0.5, 0.5, -1.5])
"""Twelve small scores, no two alike."""
_ORDER = (0, 3, 8, 2, 5, 10, 4, 9, 1, 11, 6, 7)
"""The candidates in the order of those scores."""


@_HEADS
@pytest.mark.parametrize("sent", [0, 1, 5, 11, 12])
def test_what_is_worth_its_price_is_sent_and_the_action_says_how_much(k: int, sent: int) -> None:
    """Nothing sent accepts, everything escalates the query, and what lies between is a cluster, the best first."""
    known = _known(_SCORES)
    values = np.sort(_values(_ONE_CHANNEL, known, k))[::-1]
    high = 1.0 if sent == 0 else float(values[sent - 1])
    low = 1e-15 if sent == 12 else float(values[sent])
    choice = choose_round(_rule(k=k, rounds=1, price_per_pair=(high + low) / 2), known, _ONE_CHANNEL)
    assert choice.indices == _ORDER[:sent]
    assert choice.action is {0: Action.ACCEPT, 12: Action.QUERY}.get(sent, Action.CLUSTER)
    assert not choice.more
    assert choice.misfit is None
    assert choice.estimates is not None
    assert choice.estimates.k == k


@_HEADS
def test_e9_a_candidate_that_is_worth_exactly_the_price_is_not_sent(k: int) -> None:
    """Nor one that rounding puts beside it; a price a millionth lower sends it."""
    known = _known(_SCORES)
    fifth = float(np.sort(_values(_ONE_CHANNEL, known, k))[::-1][4])
    for price, sent in ((fifth, 4), (fifth * (1 - 1e-12), 4), (fifth * (1 + 1e-12), 4), (fifth * (1 - 1e-6), 5)):
        assert len(choose_round(_rule(k=k, rounds=1, price_per_pair=price), known, _ONE_CHANNEL).indices) == sent


@given(lists(), st.sampled_from((10, 5, 3, 1)), st.lists(st.floats(1e-6, 1.0), min_size=2, max_size=2))
def test_a_larger_price_never_sends_more(drawn: Lists, k: int, prices: list[float]) -> None:
    """In one round: what the dearer price sends is the head of what the cheaper sends."""
    known = _drawn(drawn)
    cheap, dear = (
        choose_round(_rule(k=k, rounds=1, price_per_pair=price, safe_top_m=0), known, _DRAWN).indices
        for price in sorted(prices)
    )
    assert dear == cheap[: len(dear)]


@given(lists(), st.floats(0.01, 1.0), st.integers(1, 2), st.integers(0, 30), st.integers(0, 1000))
def test_no_more_than_the_largest_share_is_sent(
    drawn: Lists, share: float, rounds: int, safe_top_m: int, seed: int
) -> None:
    """Over both rounds, in the safe mode too, and never more than a rule says it may send."""
    known = _drawn(drawn)
    count = len(drawn.small)
    rule = _rule(price_per_pair=1e-6, max_share=share, rounds=rounds, chunk=3, safe_top_m=safe_top_m)
    first = choose_round(rule, known, _DRAWN)
    large = known.large.copy()
    large[list(first.indices)] = np.random.default_rng(seed).normal(size=len(first.indices))
    second = choose_round(rule, replace(known, large=large), _DRAWN, first)
    sent = (*first.indices, *second.indices)
    assert len(sent) == len(set(sent)) <= share * count + 1e-6
    assert len(sent) <= most_escalated(rule, count)


@given(lists(), st.floats(1e-6, 0.1))
def test_what_the_small_stage_left_out_is_not_sent(drawn: Lists, price: float) -> None:
    """A blank or refused document has no estimate worth the name; in the safe mode it stands last."""
    choice = choose_round(_rule(price_per_pair=price, safe_top_m=0), _drawn(drawn), _DRAWN)
    assert all(np.isfinite(drawn.small[index]) for index in choice.indices)
    fused = FusedEscalation(kind="static-fused", calibration=_DIGEST, top_m=99, safe_top_m=0)
    assert set(choose_round(fused, _drawn(drawn), _DRAWN).indices) <= set(np.flatnonzero(np.isfinite(drawn.small)))


@_HEADS
@pytest.mark.parametrize(
    ("accept", "direction"),
    [("margin_at_least", 1), ("entropy_at_most", -1), ("expected_loss_at_most", -1)],
)
def test_e9_accept_thresholds_point_the_right_way(k: int, accept: str, direction: int) -> None:
    """The margin must be as high as its threshold, entropy and expected loss as low; at a tie each holds."""
    known = _known(_SCORES)
    rule = _rule(k=k, price_per_pair=1e-6)
    estimates = choose_round(rule, known, _ONE_CHANNEL).estimates
    assert estimates is not None
    value = getattr(estimates, accept.removesuffix("_at_least").removesuffix("_at_most"))
    for threshold, accepts in (
        (value, True),
        (value * (1 - direction * 1e-3), True),
        (value * (1 + direction * 1e-3), False),
    ):
        gated = rule.model_copy(update={"accept": _rule(accept={accept: threshold}).accept})
        choice = choose_round(gated, known, _ONE_CHANNEL)
        assert (choice.action is Action.ACCEPT) == accepts
        assert (choice.indices == ()) == accepts
        assert choice.estimates == estimates
        assert not (accepts and choice.more)


def test_every_threshold_that_is_set_has_to_hold() -> None:
    """One that does not keeps the query from being accepted."""
    rule = _rule(price_per_pair=1e-6, accept={"margin_at_least": 0.0, "entropy_at_most": 0.0})
    assert choose_round(rule, _known(_SCORES), _ONE_CHANNEL).action is Action.QUERY


def test_e3_accepting_clears_the_noise_of_the_margin() -> None:
    """A margin that may have been measured too high does not accept."""
    known = _known(_SCORES)
    estimates = choose_round(_rule(), known, _ONE_CHANNEL).estimates
    assert estimates is not None
    bound = estimates.margin - 0.01
    for noise, action in ((0.0, Action.ACCEPT), (0.009, Action.ACCEPT), (0.011, Action.QUERY)):
        rule = _rule(price_per_pair=1e-6, chunk=12, accept={"margin_at_least": bound}, margin_noise=noise)
        assert choose_round(rule, known, _ONE_CHANNEL).action is action


def test_a_second_round_is_not_asked_of_fewer_scores_than_it_was_fitted_on() -> None:
    """A first round of fewer ends it; where it can, the first round sends as many as the second needs."""
    artefact = scripted_artefact(("bm25",), second_round=True)
    assert artefact.second_round is not None
    second = artefact.second_round.model_copy(update={"least_scored": 4})
    calibration = Calibration(artefact.model_copy(update={"second_round": second}), "sha256:needs-four")
    known = _known(_SCORES)
    worth = np.sort(calibration.value(calibration.entry(known.small, known.channels), 5))[::-1]
    for wanted, sent, more in ((2, 2, False), (3, 3, False), (4, 4, True), (7, 4, True)):
        price = float(worth[wanted - 1] + worth[wanted]) / 2.0
        choice = choose_round(_rule(k=5, price_per_pair=price, first_round_factor=1e6, chunk=1), known, calibration)
        assert (len(choice.indices), choice.more) == (sent, more)


@pytest.mark.parametrize(("safe_top_m", "sent", "action"), [(20, 4, Action.QUERY), (3, 3, Action.CLUSTER)])
def test_a_list_too_short_to_estimate_goes_whole_up_to_the_safe_number(
    safe_top_m: int, sent: int, action: Action
) -> None:
    """That a caller has few candidates is no fault of the calibration: no misfit is told."""
    calibration = scripted_calibration(("bm25",), second_round=True, least_candidates=5)
    choice = choose_round(_rule(safe_top_m=safe_top_m), _known(_SCORES[:4]), calibration)
    assert len(choice.indices) == sent
    assert (choice.action, choice.misfit, choice.estimates, choice.more) == (action, None, None, False)


@pytest.mark.parametrize(
    ("known", "calibration", "why"),
    [
        (_known(_SCORES), None, "no_calibration"),
        (_known(_SCORES), scripted_calibration(("bm25",), most_candidates=11), "candidates_out_of_range"),
        (_known(_SCORES, {}), _ONE_CHANNEL, "channel_missing"),
        (_known(np.full(12, _NAN)), _ONE_CHANNEL, "too_few_scores"),
    ],
)
@pytest.mark.parametrize("fused", [False, True])
def test_where_the_calibration_does_not_hold_the_safe_mode_decides(
    known: Known, calibration: Calibration | None, why: str, fused: bool
) -> None:
    """The top of the small order, in one round, with the reason and without an estimate."""
    rule: Escalation = (
        FusedEscalation(kind="static-fused", calibration=_DIGEST, top_m=1, safe_top_m=3)
        if fused
        else _rule(safe_top_m=3)
    )
    choice = choose_round(rule, known, calibration)
    finite = np.isfinite(known.small)
    expected = _ORDER[:3] if finite.all() and len(known.small) > 1 else tuple(range(min(3, len(known.small))))
    assert choice.indices == expected
    assert (choice.action, choice.misfit, choice.estimates, choice.more) == (Action.SAFE, why, None, False)
    again = choose_round(rule, known, calibration, choice)
    assert (again.indices, again.action, again.misfit) == ((), Action.SAFE, why)


def test_the_safe_mode_counts_misfits_by_the_artefacts_own_range() -> None:
    """Too few scores of a channel that the artefact asks for are a misfit like any other."""
    calibration = Calibration(scripted_artefact(("bm25",), least_present={"bm25": 0.5}), _DIGEST)
    channels = {"bm25": np.where(np.arange(12) < 5, 1.0, _NAN)}
    choice = choose_round(_rule(safe_top_m=2), _known(_SCORES, channels), calibration)
    assert (choice.indices, choice.misfit) == (_ORDER[:2], "too_few_scores")


@_HEADS
def test_static_fused_sends_as_many_for_every_query(k: int) -> None:
    """The most valuable by p, in one round, whatever they are worth."""
    calibration = scripted_calibration(("bm25",), channel_weight=5.0)
    known = _known(_SCORES)
    rule = FusedEscalation.model_validate({"kind": "static-fused", "calibration": _DIGEST, "top_m": 4, "k": k})
    choice = choose_round(rule, known, calibration)
    by_value = np.argsort(-_values(calibration, known, k), kind="stable")
    assert choice.indices == tuple(by_value[:4].tolist()) != _ORDER[:4]
    assert (choice.action, choice.more) == (Action.STATIC, False)
    assert choose_round(rule, known, calibration, choice).indices == ()


def test_a_first_round_sends_what_is_worth_much_more() -> None:
    """Eight times the price, and at least a chunk of what is worth the price itself; the rest waits."""
    known = _known(_SCORES)
    values = np.sort(_values(_ONE_CHANNEL, known, 10))[::-1]
    price = float(values[7] + values[6]) / 2  # seven are worth it
    eager = int((values > price * 2).sum())
    assert 1 < eager < 6
    for chunk, sent in ((1, eager), (eager + 1, eager + 1), (7, 7), (30, 7)):
        rule = _rule(price_per_pair=price, first_round_factor=2.0, chunk=chunk)
        choice = choose_round(rule, known, _ONE_CHANNEL)
        assert choice.indices == _ORDER[:sent]
        assert choice.more


@pytest.mark.parametrize(
    ("fields", "calibration"),
    [
        ({"rounds": 1}, _ONE_CHANNEL),
        ({}, scripted_calibration(("bm25",))),
        ({"price_per_pair": 1.0}, _ONE_CHANNEL),
        ({"max_share": 0.25, "chunk": 3}, _ONE_CHANNEL),
    ],
)
def test_no_second_round_is_announced_where_none_can_follow(fields: dict[str, Any], calibration: Calibration) -> None:
    """One round asked for, none fitted, nothing sent, or the share used up."""
    rule = _rule(**{"price_per_pair": 1e-6, **fields})
    choice = choose_round(rule, _known(_SCORES), calibration)
    assert not choice.more
    assert choose_round(rule, _known(_SCORES), calibration, choice).indices == ()


@_HEADS
def test_a_second_round_sends_what_is_still_worth_its_price(k: int) -> None:
    """By the estimates of after the first, and never what was sent before, scored or not."""
    known = _known(_SCORES)
    rule = _rule(k=k, price_per_pair=1e-6, chunk=4, first_round_factor=1e9)
    first = choose_round(rule, known, _ONE_CHANNEL)
    assert first.indices == _ORDER[:4]
    large = known.large.copy()
    large[[0, 3, 8]] = [1.0, 5.0, 2.0]  # candidate 2 came back without a score
    second = choose_round(rule, replace(known, large=large), _ONE_CHANNEL, first)
    assert set(second.indices) == set(_ORDER[4:])
    assert second.action is Action.QUERY
    assert second.estimates == first.estimates
    assert first.first is not None
    again = _ONE_CHANNEL.value(_ONE_CHANNEL.estimate_again(first.first, large, k), k)
    assert again[list(second.indices)].tolist() == sorted(again[list(second.indices)].tolist(), reverse=True)
    dear = choose_round(
        rule.model_copy(update={"price_per_pair": 1.0}), replace(known, large=large), _ONE_CHANNEL, first
    )
    assert (dear.indices, dear.action) == ((), Action.CLUSTER)
    third = choose_round(rule, replace(known, large=large), _ONE_CHANNEL, second)
    assert third.indices == ()


@given(lists(), st.integers(-100, 100), st.integers(-100, 100), st.sampled_from((10, 3, 1)), st.integers(0, 1000))
def test_constants_added_to_small_or_large_scores_choose_the_same(
    drawn: Lists, to_small: int, to_large: int, k: int, seed: int
) -> None:
    """Both rounds choose the same candidates in the same order, with the same estimates."""
    rule = _rule(k=k, price_per_pair=0.003, chunk=3)
    scores = np.round(np.random.default_rng(seed).normal(size=len(drawn.small)) * 8) / 8

    def rounds(small: FloatArray, large: FloatArray) -> tuple[Any, ...]:
        known = Known(small, drawn.channels, np.full(len(small), _NAN))
        first = choose_round(rule, known, _DRAWN)
        known.large[list(first.indices)] = large[list(first.indices)]
        second = choose_round(rule, known, _DRAWN, first)
        return first.indices, first.action, first.estimates, second.indices, second.action

    assert rounds(drawn.small + to_small, scores + to_large) == rounds(drawn.small, scores)


_DIRECT = {"when": [{"signal": "bm25.gap", "at_least": 0.5}, {"query_class": ["identifier"]}], "top_m": 7}


def test_a_query_goes_straight_to_the_large_stage_where_every_condition_holds() -> None:
    """As many as the rule says; with a signal that is missing it does not."""
    rule = _rule(direct=_DIRECT)
    assert signals_of_direct(rule) == {"bm25.gap", "query.class"}
    assert goes_direct(rule, Signals({"bm25.gap": 0.5}, QueryClass.IDENTIFIER)) == 7
    assert goes_direct(rule, Signals({"bm25.gap": 0.5}, QueryClass.OTHER)) == 0
    assert goes_direct(rule, Signals({}, QueryClass.IDENTIFIER)) == 0


@pytest.mark.parametrize("rule", [NoEscalation(), StaticEscalation(kind="static", top_m=3), _rule()])
def test_other_rules_read_no_signals_and_go_nowhere_directly(rule: Escalation) -> None:
    """Only a calibrated rule that says so."""
    assert signals_of_direct(rule) == frozenset()
    assert goes_direct(rule, Signals({"bm25.gap": 9.0})) == 0


@pytest.mark.parametrize(
    ("rule", "most"),
    [
        ("none", 0),
        ({"kind": "static", "top_m": 7}, 7),
        ({"kind": "static", "top_m": 99}, 50),
        ({"kind": "static-fused", "calibration": _DIGEST, "top_m": 7}, 20),
        ({"kind": "static-fused", "calibration": _DIGEST, "top_m": 30}, 30),
        ({"kind": "calibrated", "calibration": _DIGEST, "price_per_pair": 0.01}, 50),
        ({"kind": "calibrated", "calibration": _DIGEST, "price_per_pair": 0.01, "max_share": 0.3}, 15),
        ({"kind": "calibrated", "calibration": _DIGEST, "price_per_pair": 0.01, "max_share": 0.01}, 0),
    ],
)
def test_how_many_a_rule_may_send_at_most(rule: object, most: int) -> None:
    """Of a depth of fifty."""
    parsed: Escalation = TypeAdapter(EscalationSpec).validate_python(rule)
    assert most_escalated(parsed, 50) == most


def test_accepting_by_no_threshold_is_refused() -> None:
    """It would accept everything."""
    with pytest.raises(ValueError, match="set at least one threshold, or leave accept out"):
        _rule(accept={})


def test_a_rule_that_reads_small_scores_needs_a_small_stage() -> None:
    """A release without one is refused."""
    data = release_data(escalation={"kind": "calibrated", "calibration": _DIGEST, "price_per_pair": 0.01})
    del data["stages"]["small"]
    with pytest.raises(ConfigError, match="escalation calibrated reads small scores; it needs a small stage"):
        parse_release(data)
