"""Fitting the depth, in small worlds whose best answer is known."""

from __future__ import annotations

import numpy as np
import pytest

from cascade.errors import ConfigError
from cascade.fit.depth import class_difficulty, fit_depth, fit_fixed, fit_gain, fit_greedy, tried_on
from cascade.fit.observed import DIFFICULTY, Observed
from cascade.policy.depth import DepthReason, choose_depth, predicted_gains
from cascade.policy.depth_rules import FixedDepth, GainDepth, GreedyDepth
from cascade.policy.release import Limits
from cascade.signals import Signals
from cascade.types import QueryClass

_DEPTHS = (10, 20, 50, 100)
_NAMES = ("bm25.gap_tail", "overlap_10.bm25.dense")
_PRICE = 0.001
_NO_CLASS = (None,)


def _world(count: int, *, by_signal: float = 0.0, by_class: float = 0.0, seed: int = 0) -> Observed:
    """Quality that rises with depth for some queries and falls for others, told by a signal or by the class."""
    draw = np.random.default_rng(seed)
    signals = draw.normal(size=(count, 2))
    signals[draw.random(count) < 0.1, 1] = np.nan
    kinds = draw.integers(0, 2, count)
    classes = tuple((QueryClass.IDENTIFIER, QueryClass.OTHER)[kind] for kind in kinds)
    slope = by_signal * signals[:, 0] + by_class * np.where(kinds, 1.0, -1.0)
    steps = np.log2(np.array(_DEPTHS) / 10.0)
    quality = 0.5 + (0.02 + slope)[:, None] * steps + 0.05 * draw.normal(size=(count, 4))
    return Observed(_DEPTHS, quality, _NAMES, signals, classes)


def test_the_best_constant_pays_its_price() -> None:
    """Free depth is the best; at a price the shallower wins, and ties go to it."""
    quality = np.array([[0.5, 0.6, 0.62, 0.62]] * 4)
    seen = Observed(_DEPTHS, quality, (), np.zeros((4, 0)), _NO_CLASS * 4)
    assert [fit_fixed(seen, price) for price in (0.0, 0.0005, 0.002, 0.02)] == [50, 50, 20, 10]


def test_greedy_finds_the_best_constant_of_each_class() -> None:
    """Of a class with too few queries nothing is said."""
    seen = _world(300, by_class=0.1)
    rule = fit_greedy(seen, _PRICE)
    assert rule.classes == {QueryClass.IDENTIFIER: 10, QueryClass.OTHER: 100}
    assert fit_greedy(seen, _PRICE, least_queries=1000).classes == {}


def test_skip_may_be_the_best_constant_of_a_class_and_never_the_default() -> None:
    """Where scoring harms, the classes that were seen are skipped; an unknown one is scored at the shallowest."""
    seen = Observed((0, 10), np.array([[0.6, 0.5]] * 40), (), np.zeros((40, 0)), (QueryClass.OTHER,) * 40)
    rule = fit_greedy(seen, _PRICE)
    assert rule.classes == {QueryClass.OTHER: 0}
    assert rule.default == 10


def test_gain_predicts_what_a_signal_tells() -> None:
    """Its predictions follow the world's slopes, and missing values have a term of their own."""
    seen = _world(2000, by_signal=0.05)
    rule = fit_gain(seen, _PRICE)
    for value in (-1.0, 0.0, 1.0):
        steps = np.log2(np.array(_DEPTHS) / 10.0)
        wanted = (0.02 + 0.05 * value) * steps
        predicted = predicted_gains(rule, Signals({_NAMES[0]: value, _NAMES[1]: 0.0}))
        assert predicted == pytest.approx(wanted, abs=0.02)
    assert len(rule.depths[0].missing) == 2


def test_gain_without_any_value_of_a_signal_is_still_fitted() -> None:
    """A column that is missing throughout, and one that is constant, weigh nothing."""
    seen = _world(200)
    empty = np.column_stack([np.full(200, np.nan), np.ones(200)])
    rule = fit_gain(Observed(_DEPTHS, seen.quality, _NAMES, empty, seen.classes), _PRICE)
    assert all(max(map(abs, at.weights)) == 0.0 for at in rule.depths)
    choice = choose_depth(rule, Limits(), 100, Signals())
    assert (choice.depth, choice.why) == (fit_fixed(seen, _PRICE), DepthReason.GAIN)


def test_gain_is_kept_where_a_signal_tells_the_best_depth() -> None:
    """It beats the fixed depths at equal mean cost on queries that it did not see."""
    fit = fit_depth(_world(600, by_signal=0.1), _PRICE)
    assert isinstance(fit.rule, GainDepth)
    assert fit.compared[-1].kind == "gain"
    assert fit.compared[-1].wins
    assert fit.compared[-1].low < fit.compared[-1].difference < fit.compared[-1].high


def test_greedy_is_kept_where_the_class_tells_it() -> None:
    """Gain, which sees no more of it than its difficulty, does not beat it."""
    fit = fit_depth(_world(600, by_class=0.1), _PRICE)
    assert isinstance(fit.rule, GreedyDepth)
    assert fit.history is None
    assert [(one.kind, one.against, one.wins) for one in fit.compared] == [
        ("greedy", "fixed", True),
        ("gain", "greedy", False),
    ]


@pytest.mark.parametrize("seed", range(3))
def test_shuffled_quality_leaves_the_fixed_depth(seed: int) -> None:
    """Where nothing tells the best depth, the simplest rule is kept."""
    seen = _world(400, by_signal=0.1, by_class=0.1, seed=seed)
    shuffled = seen.quality[np.random.default_rng(seed).permutation(400)]
    fit = fit_depth(Observed(_DEPTHS, shuffled, _NAMES, seen.signals, seen.classes), _PRICE, seed=seed)
    assert isinstance(fit.rule, FixedDepth)
    assert not any(one.wins for one in fit.compared)


def test_rules_are_tried_on_queries_of_another_source() -> None:
    """Each against the fixed depths at its own mean depth; what the class tells is found again."""
    greedy, gain = tried_on(_world(400, by_class=0.1), _world(300, by_class=0.1, seed=1), _PRICE)
    assert (greedy.kind, greedy.against, gain.kind) == ("greedy", "fixed", "gain")
    assert greedy.wins
    assert gain.wins, "it reads the class's difficulty"
    assert 40 < greedy.mean_depth < 70


def test_difficulty_is_what_a_class_loses_at_the_greatest_depth() -> None:
    """One minus its mean quality there; nothing is said of few queries, nor where there is one class only."""
    seen = _world(400, by_class=0.1)
    identifiers = np.array([name is QueryClass.IDENTIFIER for name in seen.classes])
    expected = {
        QueryClass.IDENTIFIER: 1.0 - seen.quality[identifiers, -1].mean(),
        QueryClass.OTHER: 1.0 - seen.quality[~identifiers, -1].mean(),
    }
    assert class_difficulty(seen) == pytest.approx(expected)
    assert class_difficulty(seen, least_queries=1000) == {}
    assert class_difficulty(seen.take(np.flatnonzero(identifiers))) == {}


def test_history_is_frozen_where_the_gain_that_is_kept_reads_it() -> None:
    """It is of all queries, and the rule names the signal."""
    seen = _world(600, by_signal=0.1, by_class=0.05)
    fit = fit_depth(seen, _PRICE)
    assert isinstance(fit.rule, GainDepth)
    assert fit.rule.signals[-1].signal == DIFFICULTY
    assert fit.history is not None
    assert fit.history.classes == class_difficulty(seen)
    assert fit.history.tenants == {}


def test_without_classes_gain_reads_no_history() -> None:
    """No class has a difficulty then."""
    seen = _world(600, by_signal=0.1)
    fit = fit_depth(Observed(seen.depths, seen.quality, seen.names, seen.signals, (None,) * 600), _PRICE)
    assert isinstance(fit.rule, GainDepth)
    assert [one.signal for one in fit.rule.signals] == list(_NAMES)
    assert fit.history is None


def test_no_more_is_paid_for_than_there_are_candidates() -> None:
    """Depths beyond a short list cost what its end does."""
    quality = np.array([[0.5, 0.6, 0.62, 0.64]] * 20)
    seen = Observed(_DEPTHS, quality, (), np.zeros((20, 0)), _NO_CLASS * 20, np.full(20, 15))
    assert seen.cost[0].tolist() == [10.0, 15.0, 15.0, 15.0]
    assert fit_fixed(seen, 0.001) == 100
    assert fit_depth(seen, 0.001).compared[0].mean_depth == 15.0


def test_fitting_is_deterministic_for_a_seed() -> None:
    """Folds and resamples are drawn from it."""
    seen = _world(120, by_signal=0.1)
    assert fit_depth(seen, _PRICE, seed=3) == fit_depth(seen, _PRICE, seed=3)


def test_too_few_queries_are_refused() -> None:
    """Each fold needs some to be asked on, and some to be fitted on."""
    with pytest.raises(ConfigError, match="from 10 queries on"):
        fit_depth(_world(9), _PRICE)
