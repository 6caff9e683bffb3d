"""How many candidates the small stage scores."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from cascade.policy.depth import AnyDepth, DepthChoice, DepthReason, choose_depth, needed_signals, predicted_gains
from cascade.policy.depth_rules import EXAMPLE, AdaptiveDepth, DepthSpec, FixedDepth, GainDepth, SkipDepth
from cascade.policy.release import Limits
from cascade.signals import Inputs, Script, Signals, compute
from cascade.types import QueryClass

_READ: TypeAdapter[AnyDepth] = TypeAdapter(DepthSpec)
_WIDE = Limits(max_candidates=1000)
_GAP, _SEPARATION, _DUPLICATE = "bm25.gap_tail", "channels.separation", "head.duplicate"


def _read(data: Mapping[str, Any]) -> AnyDepth:
    return _READ.validate_python(dict(data))


def _rules(*rules: Mapping[str, Any], **bounds: Any) -> AnyDepth:
    return _read({"kind": "signals", "default": 50, "rules": list(rules), **bounds})


def _rule(depth: int | str, **bound: Any) -> dict[str, Any]:
    return {"when": [{"signal": _GAP, **bound}], "depth": depth}


def _choose(rule: AnyDepth, signals: Signals | None, count: int = 1000) -> DepthChoice:
    return choose_depth(rule, _WIDE, count, signals)


def _having(
    values: Mapping[str, float], query_class: QueryClass | None = None, script: Script | None = None
) -> Signals:
    return Signals(values, query_class, script)


def _of(query_class: QueryClass) -> Signals:
    return Signals({}, query_class)


@pytest.mark.parametrize(
    ("depth", "limit", "candidates", "expected"), [(0, 200, 50, 0), (30, 200, 50, 30), (80, 60, 90, 60), (80, 60, 7, 7)]
)
def test_depth_is_the_fixed_one_within_limit_and_candidates(
    depth: int, limit: int, candidates: int, expected: int
) -> None:
    """The least of the release's depth, its limit and the candidates holds; zero stays zero."""
    choice = choose_depth(FixedDepth(depth=depth), Limits(max_candidates=limit), candidates, None)
    assert choice == DepthChoice(expected, DepthReason.FIXED)


def test_skip_scores_nothing() -> None:
    """No signal is needed for it, and a head of different documents changes nothing."""
    rule = SkipDepth(kind="skip")
    assert _choose(rule, None) == DepthChoice(0, DepthReason.SKIP)
    assert _choose(rule, _having({_DUPLICATE: 0.79})).depth == 0


def test_near_duplicates_at_the_head_veto_skip() -> None:
    """The default is scored: which of two near-duplicates is better, the first stage cannot tell."""
    rule = SkipDepth(kind="skip", default=30, duplicate_head=0.7)
    assert _choose(rule, _having({_DUPLICATE: 0.7})) == DepthChoice(30, DepthReason.DUPLICATE_HEAD)
    assert needed_signals(rule) == {_DUPLICATE}


def test_greedy_scores_the_depth_of_the_class() -> None:
    """A class that is left out, and a query without a class, have the default."""
    rule = _read({"kind": "greedy", "default": 40, "classes": {"identifier": 10, "short-ambiguous": "skip"}})
    assert _choose(rule, _of(QueryClass.IDENTIFIER)) == DepthChoice(10, DepthReason.CLASS)
    assert _choose(rule, _of(QueryClass.SHORT_AMBIGUOUS)) == DepthChoice(0, DepthReason.CLASS)
    assert _choose(rule, _of(QueryClass.OTHER)) == DepthChoice(40, DepthReason.DEFAULT)
    assert _choose(rule, None) == DepthChoice(40, DepthReason.DEFAULT)


def test_the_first_rule_that_matches_wins() -> None:
    """Later rules that would match too do not count."""
    rule = _rules(_rule(10, at_least=3.0), _rule(20, at_least=1.0), _rule(30, at_least=2.0))
    assert _choose(rule, _having({_GAP: 5.0})) == DepthChoice(10, DepthReason.RULE, 0)
    assert _choose(rule, _having({_GAP: 2.5})) == DepthChoice(20, DepthReason.RULE, 1)
    assert _choose(rule, _having({_GAP: 0.5})) == DepthChoice(50, DepthReason.DEFAULT)


@pytest.mark.parametrize(
    ("bound", "holds"),
    [
        ({"at_least": 2.0}, (False, True, True)),
        ({"above": 2.0}, (False, False, True)),
        ({"at_most": 2.0}, (True, True, False)),
        ({"below": 2.0}, (True, False, False)),
        ({"at_least": 2.0, "below": 3.0}, (False, True, False)),
        ({"at_least": 0.0, "at_most": 0.0}, (False, False, False)),
    ],
)
def test_bounds_hold_as_they_are_named(bound: dict[str, float], holds: tuple[bool, ...]) -> None:
    """At 1, 2 and 3; of several bounds all must hold, and zero is a bound like any other."""
    chosen = [_choose(_rules(_rule(10, **bound)), _having({_GAP: value})).depth for value in (1.0, 2.0, 3.0)]
    assert chosen == [10 if at else 50 for at in holds]


def test_all_conditions_of_a_rule_must_hold() -> None:
    """Class, script and signal together; one that fails leaves the default."""
    when = [{"query_class": ["identifier", "other"]}, {"script": ["latin"]}, {"signal": _GAP, "above": 1.0}]
    rule = _rules({"when": when, "depth": 20})
    assert _choose(rule, _having({_GAP: 2.0}, QueryClass.OTHER, Script.LATIN)).depth == 20
    assert _choose(rule, _having({_GAP: 0.0}, QueryClass.OTHER, Script.LATIN)).depth == 50
    assert _choose(rule, _having({_GAP: 2.0}, QueryClass.MULTI_PART, Script.LATIN)).depth == 50
    assert _choose(rule, _having({_GAP: 2.0}, QueryClass.OTHER, Script.HAN)).depth == 50
    assert needed_signals(rule) == {_GAP, "query.class", "query.script"}


@pytest.mark.parametrize("bound", ["at_least", "above", "at_most", "below"])
def test_a_missing_signal_holds_no_condition(bound: str) -> None:
    """NaN, a signal that was not computed, and no signals at all leave the default."""
    rule = _rules(_rule(10, **{bound: 0.0}))
    for signals in (_having({_GAP: math.nan}), Signals(), None):
        assert _choose(rule, signals) == DepthChoice(50, DepthReason.DEFAULT)


def test_a_rule_may_skip_unless_the_head_repeats_itself() -> None:
    """Then the default is scored, and the choice still names the rule."""
    rule = _rules(_rule("skip", at_least=3.0), least=10)
    assert _choose(rule, _having({_GAP: 5.0})) == DepthChoice(0, DepthReason.RULE, 0)
    signals = _having({_GAP: 5.0, _DUPLICATE: 0.9})
    assert _choose(rule, signals) == DepthChoice(50, DepthReason.DUPLICATE_HEAD, 0)
    assert needed_signals(rule) == {_GAP, _DUPLICATE}


def test_a_query_without_an_answer_is_not_scored_deeper_than_the_default() -> None:
    """No channel tells its head from its tail; where that is not known, the rule stands."""
    rule = _rules(_rule(100, at_most=1.0), answer_separation=2.5)
    flat = {_GAP: 0.5}
    assert _choose(rule, _having(flat | {_SEPARATION: 2.4})) == DepthChoice(50, DepthReason.NO_ANSWER, 0)
    assert _choose(rule, _having(flat | {_SEPARATION: 2.5})) == DepthChoice(100, DepthReason.RULE, 0)
    assert _choose(rule, _having(flat | {_SEPARATION: math.nan})).depth == 100
    assert needed_signals(rule) == {_GAP, _SEPARATION}


def test_bounds_hold_for_every_depth_but_skip() -> None:
    """A rule below the least, above the most, and a default above it."""
    rule = _rules(_rule(5, at_least=3.0), _rule(300, at_least=2.0), least=20, most=40)
    assert _choose(rule, _having({_GAP: 5.0})).depth == 20
    assert _choose(rule, _having({_GAP: 2.0})).depth == 40
    assert _choose(rule, None).depth == 40


def _gain(price: float, *, first: int = 10) -> GainDepth:
    grid = [(first, 0.0, 0.0, 0.0), (50, 0.10, 0.05, -0.02), (100, 0.12, 0.10, -0.04)]
    return GainDepth.model_validate(
        {
            "kind": "gain",
            "default": 50,
            "price_per_candidate": price,
            "signals": [{"signal": _GAP, "mean": 2.0, "sd": 0.5}],
            "depths": [
                {"depth": depth, "intercept": at, "weights": [weight], "missing": [missing]}
                for depth, at, weight, missing in grid
            ],
        }
    )


def test_gain_is_linear_in_standardised_signals() -> None:
    """A signal of 2.5 is one standard deviation up; one far off is clipped to five; a missing one has its own term."""
    assert predicted_gains(_gain(0.0), _having({_GAP: 2.5})) == pytest.approx([0.0, 0.15, 0.22])
    assert predicted_gains(_gain(0.0), _having({_GAP: 1e6})) == pytest.approx([0.0, 0.35, 0.62])
    assert predicted_gains(_gain(0.0), Signals()) == pytest.approx([0.0, 0.08, 0.08])


@pytest.mark.parametrize(("price", "depth"), [(0.0, 100), (0.0003, 100), (0.0005, 50), (0.0024, 50), (0.003, 10)])
def test_gain_goes_as_deep_as_the_price_is_paid(price: float, depth: int) -> None:
    """From 10 to 50 each candidate gains .0025, from 50 to 100 .0004."""
    assert _choose(_gain(price), _having({_GAP: 2.0})) == DepthChoice(depth, DepthReason.GAIN)


def test_gain_settles_ties_by_the_shallower() -> None:
    """Without its signal 50 and 100 gain alike."""
    assert _choose(_gain(0.0), None).depth == 50


def test_gain_may_skip_unless_the_head_repeats_itself() -> None:
    """Then it is the shallowest that is scored, so that a greater price never scores deeper."""
    rule = _gain(0.01, first=0)
    assert _choose(rule, None) == DepthChoice(0, DepthReason.GAIN)
    assert _choose(rule, _having({_DUPLICATE: 1.0})) == DepthChoice(50, DepthReason.DUPLICATE_HEAD)
    assert _choose(_gain(0.0, first=0), _having({_DUPLICATE: 1.0})) == DepthChoice(50, DepthReason.GAIN)
    assert needed_signals(rule) == {_GAP, _DUPLICATE, _SEPARATION}


def test_gain_of_a_query_without_an_answer_is_held_at_the_default() -> None:
    """Whatever is predicted beyond it."""
    signals = _having({_GAP: 9.0, _SEPARATION: 1.0})
    assert _choose(_gain(0.0), signals) == DepthChoice(50, DepthReason.NO_ANSWER)


def test_fixed_depth_needs_no_signals_and_greedy_the_class() -> None:
    """So that serving computes no more."""
    assert needed_signals(FixedDepth(depth=9)) == frozenset()
    deeper = _read({"kind": "greedy", "default": 40, "classes": {"other": 60}})
    assert needed_signals(deeper) == {"query.class", _SEPARATION}


_NAMES = (_GAP, "bm25.entropy", _SEPARATION, _DUPLICATE)
_BOUND = st.sampled_from(("at_least", "above", "at_most", "below"))
_signals = st.builds(
    Signals,
    st.dictionaries(st.sampled_from(_NAMES), st.one_of(st.floats(-10, 10), st.just(math.nan))),
    st.one_of(st.none(), st.sampled_from(QueryClass)),
    st.one_of(st.none(), st.sampled_from(Script)),
)
_bounds = st.fixed_dictionaries(
    {"least": st.integers(1, 20), "default": st.integers(20, 90), "most": st.integers(20, 200)}
)
_depths = st.integers(0, 300)
_signals_rule = st.builds(
    lambda bounds, rules: _read({"kind": "signals", **bounds, "rules": rules}),
    _bounds,
    st.lists(
        st.builds(
            lambda name, bound, value, depth: {"when": [{"signal": name, bound: value}], "depth": depth},
            st.sampled_from(_NAMES),
            _BOUND,
            st.floats(-10, 10),
            _depths,
        ),
        max_size=4,
    ),
)
_greedy_rule = st.builds(
    lambda bounds, classes: _read({"kind": "greedy", **bounds, "classes": classes}),
    _bounds,
    st.dictionaries(st.sampled_from([str(query_class) for query_class in QueryClass]), _depths),
)
_weight = st.floats(-1, 1)
_grid = st.lists(
    st.tuples(_depths, _weight, _weight, _weight), min_size=1, max_size=6, unique_by=lambda at: at[0]
).filter(lambda grid: any(at[0] for at in grid))
_gain_parts = st.tuples(_bounds, _grid)


def _gain_rule(parts: tuple[dict[str, int], list[tuple[int, float, float, float]]], price: float) -> GainDepth:
    bounds, grid = parts
    return GainDepth.model_validate(
        {
            "kind": "gain",
            **bounds,
            "price_per_candidate": price,
            "signals": [{"signal": _GAP, "mean": 0.0, "sd": 2.0}],
            "depths": [
                {"depth": depth, "intercept": at, "weights": [weight], "missing": [missing]}
                for depth, at, weight, missing in sorted(grid)
            ],
        }
    )


_any_rule = st.one_of(
    st.builds(lambda depth: FixedDepth(depth=depth), _depths),
    st.builds(lambda default: SkipDepth(kind="skip", default=default), st.integers(1, 300)),
    _signals_rule,
    _greedy_rule,
    st.builds(_gain_rule, _gain_parts, st.floats(0, 0.1)),
)


@given(_any_rule, st.integers(1, 300), st.integers(0, 300), st.one_of(st.none(), _signals))
def test_depth_never_exceeds_any_of_its_bounds(
    rule: AnyDepth, limit: int, candidates: int, signals: Signals | None
) -> None:
    """Limit and candidates bound every kind; least and most what is not skipped; the same is chosen twice."""
    limits = Limits(max_candidates=limit)
    choice = choose_depth(rule, limits, candidates, signals)
    assert choice == choose_depth(rule, limits, candidates, signals)
    room = min(limit, candidates)
    assert 0 <= choice.depth <= room
    free = choose_depth(rule, Limits(max_candidates=2000), 2000, signals)
    assert choice.depth == min(free.depth, room)
    if isinstance(rule, AdaptiveDepth) and free.depth:
        assert rule.least <= free.depth <= rule.most


@given(_any_rule, _signals)
def test_depth_reads_no_signal_that_it_does_not_name(rule: AnyDepth, signals: Signals) -> None:
    """What is chosen from the needed signals alone is what is chosen from all."""
    needed = needed_signals(rule)
    only = Signals(
        {name: value for name, value in signals.values.items() if name in needed},
        signals.query_class if "query.class" in needed else None,
        signals.script if "query.script" in needed else None,
    )
    assert _choose(rule, only) == _choose(rule, signals)


@given(_gain_parts, st.lists(st.floats(0, 0.2), min_size=2, max_size=6), _signals)
def test_a_greater_price_never_scores_deeper(
    parts: tuple[dict[str, int], list[tuple[int, float, float, float]]], prices: list[float], signals: Signals
) -> None:
    """Whatever the gains, bounds and vetoes are."""
    depths = [_choose(_gain_rule(parts, price), signals).depth for price in sorted(prices)]
    assert depths == sorted(depths, reverse=True)


@given(_gain_parts, st.floats(0, 0.1), st.floats(-10, 10))
def test_gain_is_the_best_of_the_grid(
    parts: tuple[dict[str, int], list[tuple[int, float, float, float]]], price: float, value: float
) -> None:
    """No other depth has more gain at that price, beyond rounding."""
    rule = _gain_rule(({"least": 1, "default": 1000, "most": 1000}, parts[1]), price)
    signals = Signals({_GAP: value})
    worth = {
        at.depth: gain - price * at.depth for at, gain in zip(rule.depths, predicted_gains(rule, signals), strict=True)
    }
    assert worth[_choose(rule, signals).depth] == pytest.approx(max(worth.values()), abs=1e-9)


@given(_any_rule, _signals)
def test_a_query_without_an_answer_never_deepens(rule: AnyDepth, signals: Signals) -> None:
    """With a separation of zero the depth is at most the default, or fixed."""
    values = {**signals.values, _SEPARATION: 0.0}
    chosen = _choose(rule, Signals(values, signals.query_class, signals.script))
    if isinstance(rule, AdaptiveDepth):
        assert chosen.depth <= rule.default


@given(_any_rule, _signals)
def test_near_duplicates_are_never_skipped(rule: AnyDepth, signals: Signals) -> None:
    """Every kind that skips scores something where the head repeats itself; a fixed depth of zero is none."""
    chosen = _choose(rule, Signals({**signals.values, _DUPLICATE: 1.0}, signals.query_class, signals.script))
    assert chosen.depth > 0 or isinstance(rule, FixedDepth)


def test_the_example_rules_do_what_they_say() -> None:
    """An identifier that leads is read to 20, flat and disagreeing channels to 100, all else to 50."""
    rule = _read(EXAMPLE)
    leads = _having({_GAP: 4.0}, QueryClass.IDENTIFIER)
    assert _choose(rule, leads).depth == 20
    flat = {"bm25.entropy": 0.9, "overlap_20.bm25.dense": 0.1, _SEPARATION: 3.0}
    assert _choose(rule, _having(flat, QueryClass.OTHER)).depth == 100
    assert _choose(rule, _having(flat | {_GAP: 0.1}, QueryClass.IDENTIFIER)).depth == 100
    assert _choose(rule, None).depth == 50
    computed = compute(needed_signals(rule), Inputs())
    assert _choose(rule, computed) == DepthChoice(50, DepthReason.DEFAULT)
